"""The options that the value-based algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlplug_core.config import Config, Count, Fraction, Natural, NonNegative, Positive, Share, integer, log, uniform
from rlplug_core.errors import BadConfig
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.schedules import Schedule, piecewise


@dataclass(frozen=True)
class PriorityOptions:
    """Prioritised replay (Schaul et al., 2016, arXiv:1511.05952)."""

    alpha: NonNegative = 0.0  # how strongly replay prefers large errors; 0 draws all alike
    beta: Fraction = 0.4  # how far importance weights make up for it at the beginning; 1 at the end
    epsilon: Positive = 1e-6  # added to every error, so that none is never drawn
    eviction: Literal["oldest", "sampled"] = "oldest"  # what makes room: the oldest, or one drawn among small errors

    def samples(self) -> bool:
        """Whether room is made at random.

        Raises:
            BadConfig: replay is uniform, so that there are no priorities to go by.
        """
        if self.eviction == "sampled" and self.alpha == 0:
            raise BadConfig("priority.eviction sampled goes by priorities; set priority.alpha above 0, such as 0.6")
        return self.eviction == "sampled"


@dataclass(frozen=True)
class ValueConfig(Config):
    """Options that the value-based algorithms share."""

    capacity: Count = 100_000  # transitions kept for replay
    store: Literal["memory", "disk", "cuda"] = "memory"  # where their observations are kept
    batch: Count = 64  # transitions per gradient step
    every: Count = 4  # env steps between bursts of gradient steps
    updates: Count = 1  # gradient steps per burst
    start: Count = 1_000  # env steps before the first gradient step
    warmup: Natural = 0  # env steps at the beginning that act at random
    gamma: Fraction = 0.99  # discount per step
    n_step: Count = 1  # rewards summed before bootstrapping
    double: bool = False  # let the online network choose the target's action (van Hasselt et al., 2016)
    dueling: bool = False  # separate streams for state value and advantages (Wang et al., 2016)
    noisy: Noise | None = None  # noise on the weights of the last layers in place of epsilon (Fortunato et al., 2018)
    sigma: Positive | None = None  # the noise at the beginning; none takes the paper's
    temperature: Positive | None = None  # softmax of the values divided by this in place of epsilon
    epsilon_start: Fraction = 1.0  # chance of a random action at the beginning
    epsilon_end: Fraction = 0.05  # and at the end
    epsilon_until: Positive = 0.2  # share of the run over which it falls
    epsilon_bends: tuple[float, ...] = ()  # points in between, each a share of the run and the chance there
    epsilon_evaluation: Fraction = 0.0  # chance of a random action in evaluation
    lr: Positive = 5e-4  # step size of the optimiser
    anneal: bool = False  # let the step size fall to 0 over the run
    rule: RuleName = "adam"  # which optimiser steps
    optimiser: OptimiserOptions = OptimiserOptions()
    target_every: Count = 250  # gradient steps between moves of the target network
    tau: Share = 1.0  # how far it moves to the online one: 1 copies, less is Polyak averaging
    gradient_clip: Positive = 10.0  # largest gradient norm
    priority: PriorityOptions = PriorityOptions()
    net: Net = Net(hidden=(256, 256), activation="relu")

    def epsilon(self) -> Schedule:
        """The chance of a random action.

        Raises:
            BadConfig: something else takes its place twice over, or `epsilon_bends` are no pairs.
        """
        if self.noisy is not None and self.temperature is not None:
            raise BadConfig("noisy and temperature both take the place of epsilon; set one of them to none")
        if len(self.epsilon_bends) % 2:
            raise BadConfig("epsilon_bends needs pairs, a share of the run and the chance there, such as 0.1,0.5")
        bends = list(zip(self.epsilon_bends[::2], self.epsilon_bends[1::2], strict=True))
        return piecewise([(0.0, self.epsilon_start), *bends, (self.epsilon_until, self.epsilon_end)])

    search = {
        "lr": log(1e-5, 1e-2), "n_step": integer(1, 5), "target_every": integer(50, 2000),
        "priority.alpha": uniform(0.0, 1.0),
    }  # fmt: skip
