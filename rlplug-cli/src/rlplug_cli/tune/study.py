"""The study: Optuna's storage of trials, made so that a kill at any moment leaves none of them stuck."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.mlflow.store import check_path, sqlite_uri
from rlplug_core.config.options import Range
from rlplug_core.errors import MissingPackage, RlplugError, UsageError, plain

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

DATABASE = "study.db"
#: Trials before the first may be pruned, and before options are drawn from what was seen.
STARTUP = 10


def opened(
    directory: Path,
    searched: str,
    storage: str | None,
    seed: int,
    pruned: bool,
    warmup: int,
    former: str = "",
) -> Study:
    """The study of a directory, made where there is none.

    Args:
        searched: stands for what is searched; `former` stood for the same.
        warmup: the env step before which nothing is pruned.

    Raises:
        MissingPackage: Optuna is not installed. UsageError: it is of another search, or of another directory.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingPackage("tuning needs Optuna: pip install 'rlplug-cli[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = storage or _database(directory / DATABASE)
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if pruned:
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP // 2, n_warmup_steps=warmup)
    try:
        study = optuna.create_study(
            storage=url,
            study_name=directory.name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruner,
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP),
        )
    except (
        Exception
    ) as error:  # a storage is SQLAlchemy's, Redis' or gRPC's: each raises errors of its own
        raise RlplugError(f"the storage {url} cannot be used: {plain(str(error))}") from error
    _claim(study, directory, (searched, former), shared=storage is not None)
    # A sampler begins with its seed; after a restart it must not draw again what it drew before.
    study.sampler = optuna.samplers.TPESampler(
        seed=seed + len(study.get_trials(deepcopy=False)), n_startup_trials=STARTUP
    )
    return study


def _claim(study: Study, directory: Path, names: tuple[str, str], shared: bool) -> None:
    """Note whose study this is, and of what: trials that are running belong to this directory's runs.

    A directory that was moved keeps its study: that in its own file always, one in a `shared` storage where it brings
    trials along and the place that it had is gone.
    """
    where = str(directory.absolute())
    owner = study.user_attrs.get("directory", where)
    moved = not shared or (any(directory.glob("trial-*")) and not Path(owner).exists())
    if owner != where and not moved:
        raise UsageError(
            f"the study '{directory.name}' in this storage is that of {owner}; choose another --name"
        )
    searched = names[0]
    if study.user_attrs.get("searched", searched) not in names:
        raise UsageError(f"{directory} was made with other options; choose another --name")
    for name, value in (("directory", where), ("searched", searched)):
        if study.user_attrs.get(name) != value:
            study.set_user_attr(name, value)


def _database(path: Path) -> str:
    """A SQLite file, made under another name, so that none is ever seen half made."""
    from optuna.storages import RDBStorage

    check_path(path.absolute(), "choose another place with --out")
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        for stale in path.parent.glob(f".{path.name}.*"):
            stale.unlink()
        storage = RDBStorage(sqlite_uri(temporary.absolute()))
        storage.remove_session()
        storage.engine.dispose()
        temporary.rename(path)
    return sqlite_uri(path.absolute())


def unfinished(study: Study) -> list[Trial]:
    """The trials that were begun and not told, to be gone on with."""
    from optuna.trial import Trial, TrialState

    found = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [
        Trial(study, one._trial_id) for one in found
    ]  # a trial's id in the storage has no public name


def began(study: Study) -> int:
    """Return how many trials there are, in whatever state."""
    return len(study.get_trials(deepcopy=False))


def summary(study: Study) -> list[dict[str, Any]]:
    """Every trial as plain data."""
    return [_trial(one) for one in study.get_trials(deepcopy=False)]


def _trial(one: FrozenTrial) -> dict[str, object]:
    pruned_at = max(one.intermediate_values, default=None) if one.state.name == "PRUNED" else None
    return {
        "number": one.number,
        "state": one.state.name.lower(),
        "value": one.value,
        "params": one.params,
        "pruned_at": pruned_at,
        "seconds": one.duration.total_seconds() if one.duration else None,
    }


def best(study: Study) -> FrozenTrial | None:
    """The best of the trials that were carried out whole."""
    from optuna.trial import TrialState

    whole = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(
        whole, key=lambda one: one.value if one.value is not None else -float("inf"), default=None
    )


def importances(study: Study, space: Mapping[str, Range]) -> dict[str, float]:
    """Return how much each option tells good trials from others (PED-ANOVA); nothing without trials to tell apart."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    whole = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    names = [name for name in space if len({str(one.params.get(name)) for one in whole}) > 1]
    if len(whole) < STARTUP or not names or len({one.value for one in whole}) < 2:
        return {}
    found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=names)
    return {name: float(share) for name, share in found.items()}
