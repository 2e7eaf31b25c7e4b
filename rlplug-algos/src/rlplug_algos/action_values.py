"""What all learners of action values share, with replay or without: options, exploration, noise on the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rlplug_core.algorithm import Algorithm, B
from rlplug_core.batches import Samples, Transitions
from rlplug_core.config import Config, Fraction, Natural, Positive
from rlplug_core.errors import BadConfig
from rlplug_core.exploration import EpsilonGreedy, NoisyGreedy, Softmax
from rlplug_core.nets.modules import QNetwork
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.scheduled import unguarded
from rlplug_core.schedules import Schedule, piecewise
from rlplug_core.types import Array

#: What noise is drawn for: the online network, the values of what follows, and the choice of the next action.
ONLINE, TARGET, CHOICE = range(3)


@dataclass(frozen=True)
class ActionValueConfig(Config):
    """Options that all learners of action values share."""

    gamma: Fraction = 0.99  # discount per step
    dueling: bool = False  # separate streams for state value and advantages (Wang et al., 2016)
    noisy: Noise | None = None  # noise on the weights of the last layers in place of epsilon (Fortunato et al., 2018)
    sigma: Positive | None = None  # the noise at the beginning; none takes the paper's
    temperature: Positive | None = None  # softmax of the values divided by this in place of epsilon
    warmup: Natural = 0  # env steps at the beginning that act at random
    epsilon_start: Fraction = 1.0  # chance of a random action at the beginning
    epsilon_end: Fraction = 0.02  # and at the end
    epsilon_until: Positive = 0.5  # share of the run over which it falls
    epsilon_bends: tuple[float, ...] = ()  # points in between, each a share of the run and the chance there
    epsilon_evaluation: Fraction = 0.0  # chance of a random action in evaluation
    lr: Positive = 1e-3  # step size of the optimiser
    anneal: bool = False  # let the step size fall to 0 over the run
    rule: RuleName = "adam"  # which optimiser steps
    optimiser: OptimiserOptions = OptimiserOptions()
    net: Net = Net()

    def epsilon(self, end: float | None = None) -> Schedule:
        """The chance of a random action, which falls to `end`, or else to `epsilon_end`.

        Raises:
            BadConfig: something else takes its place twice over, or `epsilon_bends` are no chances on its way.
        """
        if self.noisy is not None and self.temperature is not None:
            raise BadConfig("noisy and temperature both take the place of epsilon; set one of them to none")
        bends, until = self.epsilon_bends, self.epsilon_until
        shares, chances = bends[::2], bends[1::2]
        on_its_way = all(0 < share < until for share in shares) and all(0 <= chance <= 1 for chance in chances)
        if len(shares) != len(chances) or not on_its_way or list(shares) != sorted(shares):
            raise BadConfig(
                f"epsilon_bends needs pairs, a share of the run between 0 and epsilon_until ({until:g}) and the chance "
                f"there from 0 to 1, in the order of the shares, such as {until / 2:g},0.5; it is "
                f"{','.join(f'{number:g}' for number in bends)}"
            )
        last = (until, self.epsilon_end if end is None else end)
        return piecewise([(0.0, self.epsilon_start), *zip(shares, chances, strict=True), last])


class ActionValueLearner(Algorithm[B]):
    """The base of learners of action values: their network, and agents that explore by it."""

    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: ActionValueConfig
    online: QNetwork

    def build(self) -> None:
        """The online network; the rest is a subclass's."""
        self.config.epsilon()  # refuses here, in the run's own process, what no agent could follow
        self.online = self.network().to(self.device)

    def network(self) -> QNetwork:
        """A new network."""
        c = self.config
        return QNetwork(self.spec, c.net, c.dueling, c.noisy, c.sigma)

    def epsilon(self, rank: int) -> Schedule:
        """The chance of a random action in a worker."""
        return self.config.epsilon()

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        c, seeds = self.config, self.agent_seeds(rank)
        if c.noisy is not None:
            return NoisyGreedy(self.online, self.online.draw, seeds, self.acting, c.warmup, c.epsilon_evaluation)
        if unguarded(c).temperature is not None:
            return Softmax(
                self.online, self.schedule("temperature"), seeds, self.acting, c.warmup, c.epsilon_evaluation
            )
        return EpsilonGreedy(self.online, self.epsilon(rank), seeds, self.acting, c.warmup, c.epsilon_evaluation)

    def drawn(self, uses: int) -> list[Array]:
        """Fresh noise for each of so many uses of a network; none where layers are plain."""
        return [] if self.config.noisy is None else [self.online.draw(self.generator) for _ in range(uses)]

    def carried(self, noise: Sequence[Array]) -> dict[str, Tensor]:
        """The same as a batch carries it to a loss."""
        return {"noise": torch.from_numpy(np.stack(noise)).to(self.device)} if noise else {}


def noise_of(batch: Transitions | Samples, use: int) -> Tensor | None:
    """The noise that a batch carries for this use of a network; None where layers are plain."""
    carried = batch.extras.get("noise")
    return None if carried is None else carried[use]
