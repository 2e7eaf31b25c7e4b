"""The options of a search, as they were typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """The options of `rlplug tune` about the search.

    Attributes:
        seeds: how many of every trial, or which ones.
        space: a file of ranges.
        prune: whether trials below the median end early, after the share `warmup` of a run.
        jobs: how many runs at once; None as cores allow.
        sampler_seed: that of what draws options.
    """

    trials: int
    seeds: str
    space: Path | None
    objective: str
    prune: bool
    warmup: float
    jobs: int | None
    sampler_seed: int
