"""A learner that imitates the data set of its run, and a data set of the chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from rlplug_core.batches import Rollout
from rlplug_core.buffers.dataset import FIELDS
from rlplug_core.clock import Clock
from rlplug_core.types import Result
from tests.core.fakes import Tiny

HERE = __file__


class Imitates(Tiny):
    """An actor-critic that also imitates four transitions of its data set per update; a metric names the first."""

    dataset_use: ClassVar[Any] = "optional"

    def build(self) -> None:
        super().build()
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        if self.dataset is None:
            return result
        demonstrations = self.dataset.batch(4)
        log_prob, _ = self.policy.head.log_prob_and_entropy(self.policy(demonstrations.obs), demonstrations.action)
        self.optim.minimize(-demonstrations.mean(log_prob), clock)
        return Result({**result.metrics, "data/first": demonstrations.index[0].float()})


class NeedsDataset(Imitates):
    """Requires a data set."""

    dataset_use: ClassVar[Any] = "required"


class MixesDataset(Tiny):
    """Takes one gradient step on its own samples and demonstrations together."""

    dataset_use: ClassVar[Any] = "required"

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        assert self.dataset is not None
        demonstrations = self.dataset.batch(4)
        log_prob, _ = self.policy.head.log_prob_and_entropy(self.policy(demonstrations.obs), demonstrations.action)
        loss, metrics = self.loss(self.samples(batch))
        self.optim.minimize(loss - demonstrations.mean(log_prob), clock)
        return Result(metrics)


IMITATES, NEEDS_DATASET = f"{HERE}:Imitates", f"{HERE}:NeedsDataset"


def write_chain(path: Path, count: int = 30) -> Path:
    """Write transitions of a policy that always goes right in the chain of five places."""
    places = np.arange(count) % 5
    obs = np.eye(5, dtype=np.float32)[places]
    after = np.where((places == 4)[:, None], 0, np.eye(5, dtype=np.float32)[(places + 1) % 5]).astype(np.float32)
    last = places == 4
    values = (obs, np.ones(count, np.int64), last.astype(np.float32), after, last, np.zeros(count, bool))
    np.savez(path, **dict(zip(FIELDS, values, strict=True)))
    return path
