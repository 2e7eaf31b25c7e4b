"""`Context`: the arguments of a learner besides spec and config."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field

import torch

from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory
from rlplug_core.seeds import Seeds


@dataclass(frozen=True)
class Context:
    """Everything that a runner gives a learner besides spec and config.

    Attributes:
        seeds: the root of the run's random numbers.
        device: the device of networks and batches.
        optimizer: makes optimizers; runners that share parameters between processes pass another one.
        rank, ranks: the number of this learner, from 0, and the number of learners.
        inference_backend: computes actions: `auto`, `numpy` or `torch`; with `cudagraphs`, `auto` means `cudagraphs`.
        compile: whether losses marked `pure` are compiled.
        cudagraphs: whether gradient steps are recorded and replayed as CUDA graphs.
        dataset: the data set of the run, for a class that asks for it; None if it only acts.
        runner: the runner's name, for options that only some of the class's `runners` support.
        stats_lock: a lock for updates of running means, which learners in several processes may share.
    """

    seeds: Seeds
    _: KW_ONLY
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    optimizer: OptimizerFactory = Optimizer
    rank: int = 0
    ranks: int = 1
    inference_backend: str = "auto"
    compile: bool = False
    cudagraphs: bool = False
    dataset: LearnerDataset | None = None
    runner: str = "sync"
    stats_lock: AbstractContextManager[object] = field(default_factory=nullcontext)
