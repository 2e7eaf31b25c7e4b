"""The samplers and pruners of a study, by the names that `--sampler` and `--pruner` take."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING

from rlplug_cli.tune.space import choice_value
from rlplug_core.config import Range
from rlplug_core.errors import MissingPackage, UsageError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

SAMPLERS = ("tpe", "random", "cmaes", "gp", "qmc", "grid")
PRUNERS = ("median", "percentile", "halving", "hyperband")
#: Trials before a sampler uses earlier results; the pruner waits for half as many.
STARTUP = 10


def sampler(name: str, seed: int, space: Mapping[str, Range]) -> BaseSampler:
    """Return a new sampler.

    Args:
        name: one of `SAMPLERS`.
        seed: of its random numbers.
        space: the ranges; only `grid` needs them.

    Raises:
        UsageError: a range has no grid. MissingPackage: a package that it needs is not installed.
    """
    from optuna import samplers
    from optuna.exceptions import ExperimentalWarning

    makers: dict[str, Callable[[], BaseSampler]] = {
        "tpe": lambda: samplers.TPESampler(seed=seed, n_startup_trials=STARTUP),
        "random": lambda: samplers.RandomSampler(seed=seed),
        "cmaes": lambda: samplers.CmaEsSampler(
            seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False
        ),
        "gp": lambda: samplers.GPSampler(seed=seed, n_startup_trials=STARTUP),
        "qmc": lambda: samplers.QMCSampler(
            seed=seed, scramble=True, warn_independent_sampling=False
        ),
        "grid": lambda: grid_sampler(grid(space), seed),
    }
    package = {"cmaes": "cmaes", "gp": "scipy", "qmc": "scipy"}.get(name)
    if package and find_spec(package) is None:
        raise MissingPackage(
            f"--sampler {name} needs the package {package}: python -m pip install {package}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return makers[name]()


def grid_sampler(
    points: Mapping[str, list[bool | int | float | str]],
    seed: int,
) -> BaseSampler:
    """Return a sampler of a grid. Optuna's own stops `Study.optimize` after the last point, which is not used here."""
    from optuna.samplers import GridSampler

    class Grid(GridSampler):
        def after_trial(self, *arguments: object) -> None:
            """Do nothing: the number of trials ends the study."""

    return Grid(points, seed=seed)


def grid(space: Mapping[str, Range]) -> dict[str, list[bool | int | float | str]]:
    """Return the points of each option.

    Raises:
        UsageError: an option has a range of real numbers.
    """
    points: dict[str, list[bool | int | float | str]] = {}
    for name, range_ in space.items():
        if range_.kind == "choice":
            points[name] = [choice_value(value) for value in range_.values]
            continue
        low, high = range_.values
        if not (isinstance(low, int) and isinstance(high, int) and range_.kind != "uniform"):
            raise UsageError(
                f"--sampler grid needs choices, and {name} has a range; write values, as in 0.1,0.2,0.3"
            )
        points[name] = list(range(low, high + 1))
    return points


def check_grid(name: str, space: Mapping[str, Range], trials: int) -> None:
    """Raise UsageError if the grid has fewer points than there are trials."""
    if name != "grid":
        return
    size = prod(len(values) for values in grid(space).values())
    if trials > size:
        raise UsageError(
            f"the grid has {size} points, and --trials is {trials}; write --trials {size}"
        )


def should_prune(
    objectives: Sequence[str],
    prune: bool | None,
    pruner: str | None,
    sampler: str,
) -> bool:
    """Return whether trials end early: as the user says, and else if they can be compared by returns.

    Raises:
        UsageError: the pruner or the sampler does not work with these objectives.
    """
    possible = len(objectives) == 1 and objectives[0] != "steps_per_second"
    is_requested = pruner is not None if prune is None else prune
    if is_requested and not possible:
        raise UsageError(
            "pruning compares returns and works with one objective, last, best or mean; leave out --prune and --pruner"
        )
    if sampler == "cmaes" and len(objectives) > 1:
        raise UsageError("--sampler cmaes works with one objective; choose another sampler")
    return possible if prune is None else prune


def pruner(name: str, warmup: int, total: int) -> BasePruner:
    """Return a pruner.

    Args:
        name: one of `PRUNERS`, or empty for none.
        warmup: the env step before which no trial is pruned.
        total: env steps of a run.
    """
    from optuna import pruners

    patience = STARTUP // 2
    makers: dict[str, Callable[[], BasePruner]] = {
        "": pruners.NopPruner,
        "median": lambda: pruners.MedianPruner(n_startup_trials=patience, n_warmup_steps=warmup),
        "percentile": lambda: pruners.PercentilePruner(
            25.0, n_startup_trials=patience, n_warmup_steps=warmup
        ),
        "halving": lambda: pruners.SuccessiveHalvingPruner(min_resource=max(1, warmup)),
        "hyperband": lambda: pruners.HyperbandPruner(
            min_resource=max(1, warmup), max_resource=max(total, warmup + 1)
        ),
    }
    return makers[name]()
