"""The options of every run, whatever the algorithm: reserved names that no algorithm's config may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlplug_core.config import Config, Count, Natural, NonNegative, Positive, Repeated, Share


@dataclass(frozen=True)
class RunOptions(Config):
    """How long, how parallel, how often. Steps are env steps, summed over all rows and workers."""

    total_steps: Count = 100_000  # env steps to train for
    max_episodes: Natural = 0  # end once so many episodes have ended, over all rows and workers; 0 for no limit
    max_seconds: NonNegative = 0.0  # end after so many seconds, those before a resume included; 0 for no limit
    target_return: float | None = None  # end at the first evaluation whose mean return reaches this
    stop_after: Natural = 0  # end after so many evaluations without improvement; 0 for never
    plateau: Natural = 0  # shrink every step size after so many evaluations without improvement; 0 for never
    plateau_factor: Share = 0.5  # what step sizes are multiplied by then
    min_improvement: NonNegative = 0.0  # by how much an evaluation must exceed the best to be an improvement
    seed: Natural = 1  # the root of all randomness; 0 is a seed like any other
    rows: Count = 1  # environment rows stepped together (in each worker under async)
    wrap: Repeated = ()  # a wrapper, NAME or NAME:option=value,…; each further one goes around the ones before
    runner: Literal["auto", "sync", "async"] = "auto"  # how to run; auto is the algorithm's best
    workers: Count = 2  # worker processes of the async runner
    inline: bool = False  # async in one process, workers in turn: deterministic, resumes to the same bits
    device: str = "cpu"  # where the learner lives: cpu, cuda, cuda:1
    threads: Count = 1  # torch threads per process; one is fastest for small networks
    acting: Literal["auto", "numpy", "torch"] = "auto"  # what computes actions; numpy is fastest for small networks
    compile: bool = False  # compile the loss with torch.compile
    eval_every: Natural = 0  # env steps between evaluations; 0 is a twentieth of the total
    eval_episodes: Count = 100  # greedy episodes per evaluation
    verdict_episodes: Natural = 100  # greedy episodes of the best checkpoint on fresh seeds at the end; 0 for none
    checkpoint_every: Natural = 0  # env steps between checkpoints; 0 is a tenth of the total
    keep: Count = 3  # periodic checkpoints kept, besides best and final
    log_every: Natural = 0  # env steps between log records; 0 is a hundredth of the total
    worker_timeout: Positive = 60.0  # seconds without a sign of life after which a worker counts as hung
