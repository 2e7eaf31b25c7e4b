"""Signals and data sets of the kit, for algorithms that ask for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from rlplug_core.batches import Transitions
from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.loop.info_columns import signals_of
from rlplug_core.loop.learner_data import gets_dataset
from rlplug_core.nets.actions import dtype_of, sample
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.probe import drawing
from rlplug_core.types import Array, Spec, State, Timestep, tree_map

#: Transitions of a data set of the kit.
TRANSITIONS = 300
#: Steps of each of its episodes.
LENGTH = 10


class Signaling(Transform):
    """Adds signals to the info of an environment that does not give them: 0 or 1, which may be costs or labels.

    Args:
        names: the signals, each with its value in steps without it, which also gives its shape.
        series: selects the random numbers.
    """

    def __init__(
        self,
        env: Env,
        names: dict[str, ArrayLike | None],
        series: int = 0,
    ) -> None:
        super().__init__(env)
        self.names = names
        self.series = series
        self.count = 0

    def reset(self, seed: int) -> Timestep:
        self.count = 0
        return self.env.reset(seed)

    def step(self, action: Array) -> Timestep:
        self.count += 1
        return self.env.step(action)

    def info(self, key: str) -> list[Any]:
        values = super().info(key)
        if key not in self.names or any(value is not None for value in values):
            return values
        generator = np.random.default_rng([self.series, self.count, sorted(self.names).index(key)])
        default = self.names[key]
        shape = () if default is None else np.asarray(default).shape
        return list(generator.integers(0, 2, (self.spec.num_envs, *shape)).astype(np.float32))

    def info_names(self) -> list[str]:
        return [*super().info_names(), *self.names]

    def state_dict(self) -> State:
        return super().state_dict() | {"count": self.count}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.count = state["count"]


def with_signals(env: Env, learner: object) -> Env:
    """Return an environment that gives the signals of a learner or its class; `env` itself if there are none."""
    names = signals_of(learner)
    return Signaling(env, names) if names else env


@dataclass
class WeighedDataset(LearnerDataset):
    """A data set that gives its transitions the weight `scale`, for checks of weights."""

    scale: float = 1.0

    def take(self, rows: Array, gamma: float = 1.0) -> Transitions:
        batch = super().take(rows, gamma)
        return replace(batch, weight=batch.weight * self.scale, share=None)


def dataset_of(
    cls: type[object],
    spec: Spec,
    seeds: Seeds,
    rank: int = 0,
) -> WeighedDataset | None:
    """Return random transitions in the spaces of an environment; None for a class that does not ask for a data set."""
    if not gets_dataset(cls):
        return None
    generator = np.random.default_rng(0)
    obs = drawing(spec.obs, TRANSITIONS + 1)(generator)
    spec.action.seed(0)
    last = np.arange(TRANSITIONS) % LENGTH == LENGTH - 1
    return WeighedDataset(
        sha256="the kit's",
        obs=tree_map(lambda array: array[:-1], obs),
        action=np.asarray(sample(spec.action, TRANSITIONS), dtype_of(spec.action)),
        reward=generator.standard_normal(TRANSITIONS).astype(np.float32),
        next_obs=tree_map(lambda array: array[1:], obs),
        terminated=last,
        truncated=np.zeros(TRANSITIONS, np.bool_),
        generator=seeds.child("dataset", rank).generator(),
        device=torch.device("cpu"),
    )
