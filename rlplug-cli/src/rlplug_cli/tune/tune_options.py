"""The options of `rlplug tune` that describe the search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TuneOptions:
    """The settings of a search.

    Attributes:
        seeds: how many seeds a trial has, or which ones.
        space: a file of ranges.
        prune: whether trials below the median end early, after the share `warmup` of a run.
        sampler: the name of the sampler that draws option values; `pruner`: of the rule that ends trials.
        jobs: how many runs at once; None for as many as the cores allow.
        sampler_seed: the seed of the sampler.
    """

    trials: int
    seeds: str
    space: Path | None
    objective: str
    prune: bool
    warmup: float
    jobs: int | None
    sampler_seed: int
    sampler: str = "tpe"
    pruner: str = "median"
