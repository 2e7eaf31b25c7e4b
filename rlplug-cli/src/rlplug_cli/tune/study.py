"""The study: Optuna's storage of trials, created so that no kill leaves a trial stuck."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.file_checks import refuse_irregular
from rlplug_cli.mlflow.store import check_path, sqlite_uri
from rlplug_cli.tune.strategies import STARTUP
from rlplug_core.config import Range
from rlplug_core.errors import MissingPackage, RlplugError, UsageError, plain
from rlplug_core.loop import notice

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

DATABASE = "study.db"


def require_optuna() -> None:
    """Raise MissingPackage if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise MissingPackage("tuning needs Optuna: pip install 'rlplug-cli[tune]'") from error


@notice("opening the study; training starts after that")
def open_study(
    directory: Path,
    search: str,
    storage: str | None,
    sampler: Callable[[int], BaseSampler],
    pruner: BasePruner,
    former: str = "",
    objectives: int = 1,
) -> Study:
    """Return the study of a directory, created if there is none.

    Args:
        search: a digest of the search; `former` is its digest in older studies.
        sampler: makes the sampler after so many trials.
        objectives: the number of objectives; all are maximized.

    Raises:
        UsageError: it belongs to another search or another directory.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = storage or _database(directory / DATABASE)
    try:
        study = optuna.create_study(
            storage=url,
            study_name=directory.name,
            directions=["maximize"] * objectives,
            load_if_exists=True,
            pruner=pruner,
            sampler=sampler(0),
        )
    except Exception as error:  # SQLAlchemy, Redis and gRPC each raise their own errors
        raise RlplugError(f"the storage {url} cannot be used: {plain(str(error))}") from error
    _claim(study, directory, (search, former), shared=storage is not None)
    # After a restart the sampler must not draw the same values again.
    study.sampler = sampler(len(study.get_trials(deepcopy=False)))
    return study


def _claim(
    study: Study,
    directory: Path,
    digests: tuple[str, str],
    shared: bool,
) -> None:
    """Record in a study its directory and its search; its running trials belong to this directory's runs.

    A directory that was moved keeps its study. In a `shared` storage that holds only if the directory brings trials
    along and its old path is gone.
    """
    path = str(directory.absolute())
    owner = study.user_attrs.get("directory", path)
    moved = not shared or (any(directory.glob("trial-*")) and not Path(owner).exists())
    if owner != path and not moved:
        raise UsageError(
            f"the study '{directory.name}' in this storage belongs to {owner}; choose another --name"
        )
    search = digests[0]
    if study.user_attrs.get("searched", search) not in digests:
        raise UsageError(f"{directory} was started with other options; choose another --name")
    for name, value in (("directory", path), ("searched", search)):
        if study.user_attrs.get(name) != value:
            study.set_user_attr(name, value)


def _database(path: Path) -> str:
    """Return the URL of a SQLite file; a new one is created under another name, so it is never seen half written."""
    from optuna.storages import RDBStorage

    check_path(path.absolute(), "choose another place with --out")
    refuse_irregular(path)
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        for stale in path.parent.glob(f".{path.name}.*"):
            stale.unlink()
        storage = RDBStorage(sqlite_uri(temporary.absolute()))
        storage.remove_session()
        storage.engine.dispose()
        temporary.rename(path)
    return sqlite_uri(path.absolute())


def running_trials(study: Study) -> list[Trial]:
    """Return the trials that have started and not ended."""
    from optuna.trial import Trial, TrialState

    frozen = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [Trial(study, trial._trial_id) for trial in frozen]  # the id has no public name


def count(study: Study) -> int:
    """Return the number of trials in any state."""
    return len(study.get_trials(deepcopy=False))


def summary(study: Study) -> list[dict[str, Any]]:
    """Return every trial as plain data."""
    return [_plain_trial(trial) for trial in study.get_trials(deepcopy=False)]


def _plain_trial(trial: FrozenTrial) -> dict[str, object]:
    pruned = trial.state.name == "PRUNED"
    values = trial.values
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "value": values[0] if values else None,
        "values": values,
        "params": trial.params,
        "pruned_at": max(trial.intermediate_values, default=None) if pruned else None,
        "seconds": trial.duration.total_seconds() if trial.duration else None,
    }


def best(study: Study) -> FrozenTrial | None:
    """Return the complete trial with the highest value of the first objective."""
    from optuna.trial import TrialState

    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    with_values = [trial for trial in complete if trial.values]
    return max(with_values, key=lambda trial: trial.values[0], default=None)


def pareto_front(study: Study) -> list[int]:
    """Return the numbers of the trials that no other trial dominates."""
    return [trial.number for trial in study.best_trials]


def importances(study: Study, space: Mapping[str, Range]) -> dict[str, float]:
    """Return the importance of each option (PED-ANOVA).

    It is empty if there are too few different trials, or several objectives.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    if len(study.directions) > 1:
        return {}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = {name: {str(trial.params.get(name)) for trial in complete} for name in space}
    names = [name for name in space if len(values[name]) > 1]
    if len(complete) < STARTUP or not names or len({trial.value for trial in complete}) < 2:
        return {}
    evaluator = PedAnovaImportanceEvaluator()
    shares = get_param_importances(study, evaluator=evaluator, params=names)
    return {name: float(share) for name, share in shares.items()}
