"""The common part of `run` and `resume`: progress while a run trains, and what is said at its end."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.lookup import ended, file_name, final_evaluation, short_path, untrained
from rlplug_cli.mlflow import episodes, mirror
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.live import display
from rlplug_core.config.numbers import figures
from rlplug_core.errors import NotWritten, plain, warn

if TYPE_CHECKING:
    from rlplug_core.loop.events import Progress
    from rlplug_core.runs.api import Run


def train(
    algorithm: str,
    env: str,
    values: Mapping[str, object],
    origins: Mapping[str, str],
    *,
    name: str | None,
    out: Path,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Train a new run and say what came of it."""
    say = None if quiet else partial(echo, err=as_json)

    def train(watch: Callable[[Progress], None]) -> Run:
        from rlplug_core.runs.api import train

        return train(
            algorithm, env, values, out=out, name=name, origins=origins, watch=watch, say=say
        )

    train_and_report(title(algorithm, env, values, origins), train, as_json, quiet)


def title(
    algorithm: str, env: str, values: Mapping[str, object], origins: Mapping[str, str]
) -> str:
    """The header of a run: what is trained on what, its wrappers, and the options that somebody chose."""
    chosen = [
        name
        for name, origin in origins.items()
        if origin not in ("preset", "default") and name in values
    ]
    words = [
        f"{name}={_shown(values[name])}"
        for name in sorted(chosen, key="wrap".__ne__)
        if name not in ("seed", "env")
    ]
    parts = [
        file_name(algorithm),
        file_name(env),
        f"seed {values.get('seed', 1)}",
        *([plain(" ".join(words), 160)] * bool(words)),
    ]
    return " · ".join(parts)


def _shown(value: object) -> str:
    """An option's value in a word."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def train_and_report(
    title: str,
    work: Callable[[Callable[[Progress], None]], Run],
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Run `work` under the progress display, unless it shall be quiet; then say what came of it.

    That is the final evaluation, the run's path and the way to MLflow.
    """
    if quiet:
        run = work(lambda progress: None)
    else:
        with display(title, sys.stderr if as_json else sys.stdout) as watch:
            run = work(watch)
    try:
        episodes.refresh(run.path)
    except (
        NotWritten
    ) as error:  # a table that the journal can make again is no reason to call a run failed
        warn(str(error))
    if as_json:
        echo_json(result(run))
    else:
        echo(conclusion(run))


def result(run: Run) -> dict[str, object]:
    """Return the result of a run, for scripts."""
    state = mirror.State.read(run.path)
    sent = {"tracking_uri": state.tracking_uri, "run_id": state.run_id} if state else None
    return {
        "run": str(run.path),
        "name": run.name,
        "status": run.status,
        "reason": ended(run.path),
        "final_eval": final_evaluation(run.path),
        "mlflow": sent,
    }


def conclusion(run: Run) -> str:
    """The last lines of a run on a terminal."""
    lines = [f"run      {short_path(run.path)}"]
    if found := final_evaluation(run.path):
        lines[:0] = said(found)
    lines[:0] = [reason for reason in (ended(run.path), untrained(run.path)) if reason]
    if state := mirror.State.read(run.path):
        lines.append(f"mlflow   {way_to(state)}")
    return "\n".join(lines)


def said(found: Mapping[str, Any]) -> list[str]:
    """A final evaluation as two lines: the last weights, and the best checkpoint."""
    lines = []
    for of, title in (
        ("last_", "final evaluation  last weights"),
        ("", "                  best checkpoint"),
    ):
        if f"{of}checkpoint" in found:  # runs of older versions judged their best checkpoint alone
            spread, least, most = (
                found.get(f"{of}return_{name}", math.nan) for name in ("std", "min", "max")
            )
            rate = found.get(f"{of}success_rate")
            success = "" if rate is None else f"success rate {rate:.1%}, "
            lines.append(
                f"{title}  mean return {figures(found[f'{of}return_mean'])} ± {figures(spread)} over "
                f"{found.get('episodes', 0)} greedy episodes (min {figures(least)}, max {figures(most)}), "
                f"{success}{found[f'{of}checkpoint']}"
            )
            if agents := by_agent(found, f"{of}return_mean/"):
                lines.append(f"{'':<18}by agent  {agents}")
    return lines


def by_agent(found: Mapping[str, Any], begin: str) -> str:
    """The mean returns of agents, `a 1.0, b 2.0`, from the entries whose names begin so; empty where there are none."""
    means = {
        name.removeprefix(begin): value for name, value in found.items() if name.startswith(begin)
    }
    return ", ".join(f"{agent} {figures(mean)}" for agent, mean in means.items())


def way_to(state: mirror.State) -> str:
    """Return the command that opens a run in the MLflow UI."""
    if state.tracking_uri.startswith(("http://", "https://")):
        return f"{state.tracking_uri.rstrip('/')}/#/experiments/{state.experiment_id}/runs/{state.run_id}"
    return "rlplug ui"
