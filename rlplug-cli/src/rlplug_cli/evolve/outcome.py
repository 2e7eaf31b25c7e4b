"""Runs a population until its members have ended, and reports the result."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlplug_cli.evolve.evolution import Evolution, Plan
from rlplug_cli.notes import short_path
from rlplug_cli.parameters import short_value_text
from rlplug_cli.render.live import number
from rlplug_cli.render.tables import table
from rlplug_cli.sweep.display import run_to_end
from rlplug_cli.sweep.executors import LocalPlace
from rlplug_cli.sweep.manifest import lock_directory
from rlplug_cli.sweep.task_pool import TaskPool
from rlplug_core.errors import RlplugError
from rlplug_core.loop import cores


@dataclass(frozen=True)
class Outcome:
    """The result of a population: a row per member, and the chunks with their exchanges."""

    directory: Path
    members: list[dict[str, Any]]
    chunks: list[dict[str, Any]]

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """Return the members with a final return of the last weights, the highest first."""
        ended = [member for member in self.members if member["final"] is not None]
        return sorted(ended, key=lambda member: -member["final"])

    @property
    def best(self) -> dict[str, Any] | None:
        """Return the member with the highest final return of the last weights."""
        return next(iter(self.ranked), None)

    def as_json(self) -> dict[str, Any]:
        """Return the result for `--json`."""
        return {
            "population": str(self.directory),
            "members": self.members,
            "chunks": self.chunks,
            "best": self.best,
        }

    def text(self) -> str:
        """Return the members, best first, and the paths."""
        names = list(self.members[0]["options"])
        unfinished = [member for member in self.members if member["final"] is None]
        rows = []
        for member in [*self.ranked, *unfinished]:
            final = "-" if member["final"] is None else number(member["final"])
            rows.append((member["name"], final, *map(short_value_text, member["options"].values())))
        exchanges = sum(len(chunk["changes"]) for chunk in self.chunks)
        lines = [table(("MEMBER", "RETURN", *names), rows), ""]
        lines.append(f"{len(self.chunks) + 1} chunks, {exchanges} exchanges")
        if self.best is not None:
            lines.append(f"best     {short_path(self.directory / self.best['name'])}")
        return "\n".join([*lines, f"runs     {short_path(self.directory)}"])


def run_population(
    directory: Path,
    plan: Plan,
    jobs: int | None,
    as_json: bool,
) -> Outcome:
    """Run a population until all members have ended.

    Raises:
        UsageError: another process works on the directory, or it belongs to another search. Interrupted: a signal
            came; the same command continues. RlplugError: a member failed.
    """
    with lock_directory(directory) as lock:
        pool = TaskPool(directory, LocalPlace(lock), jobs or cores())
        evolution = Evolution(plan, pool)
        stream = sys.stderr if as_json else sys.stdout
        interrupted = run_to_end(
            evolution,
            pool,
            stream,
            lambda: f"chunk to step {evolution.boundary:,}, of {plan.total:,}",
        )
        outcome = _outcome(directory, evolution)
        from rlplug_cli.mlflow.conclusion import conclude

        conclude(directory, [], "KILLED" if interrupted else "FINISHED")
    if interrupted is not None:
        raise interrupted
    return outcome


def _outcome(directory: Path, evolution: Evolution) -> Outcome:
    history = evolution.history
    members = [
        {
            "name": entry.task.name,
            "seed": entry.task.seed,
            "status": entry.progress.status,
            "final": entry.progress.finals.get("last", entry.progress.last),
            "options": evolution.plan.goal.with_types(history.options(index)),
        }
        for index, entry in enumerate(evolution.entries)
    ]
    return Outcome(directory, members, [asdict(chunk) for chunk in history.chunks])


def raise_failures(outcome: Outcome) -> None:
    """Raise RlplugError if a member did not finish."""
    failed = [member["name"] for member in outcome.members if member["status"] != "finished"]
    if failed:
        raise RlplugError(
            f"{len(failed)} of {len(outcome.members)} members did not finish: {', '.join(failed)}; "
            "type the same command again to retry them"
        )
