"""The options that the algorithms with action values and replay share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlplug_algos.action_values import ActionValueConfig
from rlplug_core.config import Count, Fraction, NonNegative, Positive, Share, integer, log, uniform
from rlplug_core.errors import BadConfig
from rlplug_core.nets.net import Net


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
class ValueConfig(ActionValueConfig):
    """Options that the algorithms with action values and replay share."""

    capacity: Count = 100_000  # transitions kept for replay
    store: Literal["memory", "disk", "cuda"] = "memory"  # where their observations are kept
    batch: Count = 64  # transitions per gradient step
    every: Count = 4  # env steps between bursts of gradient steps
    updates: Count = 1  # gradient steps per burst
    start: Count = 1_000  # env steps before the first gradient step
    n_step: Count = 1  # rewards summed before bootstrapping
    double: bool = False  # let the online network choose the target's action (van Hasselt et al., 2016)
    epsilon_end: Fraction = 0.05  # and at the end
    epsilon_until: Positive = 0.2  # share of the run over which it falls
    lr: Positive = 5e-4  # step size of the optimiser
    target_every: Count = 250  # gradient steps between moves of the target network
    tau: Share = 1.0  # how far it moves to the online one: 1 copies, less is Polyak averaging
    gradient_clip: Positive = 10.0  # largest gradient norm
    priority: PriorityOptions = PriorityOptions()
    net: Net = Net(hidden=(256, 256), activation="relu")

    search = {
        "lr": log(1e-5, 1e-2), "n_step": integer(1, 5), "target_every": integer(50, 2000),
        "priority.alpha": uniform(0.0, 1.0),
    }  # fmt: skip
