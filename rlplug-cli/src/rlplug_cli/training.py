"""Trains with a progress display and reports the result, for `run` and `resume`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.mlflow import episodes, mirror
from rlplug_cli.mlflow.hook import early_sender
from rlplug_cli.notes import end_reason, file_name, no_update_note, short_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.live import display
from rlplug_core.config import figures
from rlplug_core.errors import plain
from rlplug_core.runs import final_evaluation

if TYPE_CHECKING:
    from rlplug_core.loop import Progress
    from rlplug_core.plugins import RunRequest
    from rlplug_core.runs import Run


def train(
    request: RunRequest,
    *,
    name: str | None,
    out: Path,
    as_json: bool,
    quiet: bool = False,
    until: int | None = None,
) -> None:
    """Train a new run and report the result."""
    say = None if quiet else partial(echo, err=as_json)

    def work(watch: Callable[[Progress], None]) -> Run:
        with early_sender():
            from rlplug_core.runs import start  # imports torch

            return start(
                request, out=out, name=name, watch=watch, hooks=[episodes], say=say, until=until
            )

    train_and_report(title(request), work, as_json, quiet)


def title(request: RunRequest) -> str:
    """Return the header of a run: algorithm, environment, seed, wrappers and the options that the user set."""
    values = request.values
    set_by_user = [name for name in request.set_by_user if name in values.keys() - {"seed", "env"}]
    words = []
    for name in sorted(set_by_user, key="wrap".__ne__):  # wrappers first
        value = values[name]
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        words.append(f"{name}={text}")
    parts = [file_name(request.algorithm), file_name(request.source.name)]
    parts.append(f"seed {values.get('seed', 1)}")
    if words:
        parts.append(plain(" ".join(words), 160))
    return " · ".join(parts)


def train_and_report(
    title: str,
    work: Callable[[Callable[[Progress], None]], Run],
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Run `work` under the progress display, unless `quiet`; then report the result.

    The report has the final evaluation, the run's path and the address in MLflow.
    """
    if quiet:
        run = work(lambda progress: None)
    else:
        with display(title, sys.stderr if as_json else sys.stdout) as watch:
            run = work(watch)
    if as_json:
        echo_json(result(run))
    else:
        echo(conclusion(run))


def result(run: Run) -> dict[str, object]:
    """Return the result of a run for `--json`."""
    state = mirror.State.read(run.path)
    mlflow_run = {"tracking_uri": state.tracking_uri, "run_id": state.run_id} if state else None
    return {
        "run": str(run.path),
        "name": run.name,
        "status": run.status,
        "reason": end_reason(run.path),
        "final_eval": final_evaluation(run.path),
        "mlflow": mlflow_run,
    }


def conclusion(run: Run) -> str:
    """Return the last lines of a run on a terminal."""
    lines = [f"run      {short_path(run.path)}"]
    if scores := final_evaluation(run.path):
        lines[:0] = final_lines(scores)
    lines[:0] = [reason for reason in (end_reason(run.path), no_update_note(run.path)) if reason]
    if state := mirror.State.read(run.path):
        lines.append(f"mlflow   {mlflow_address(state)}")
    return "\n".join(lines)


def final_lines(scores: Mapping[str, Any]) -> list[str]:
    """Return a final evaluation as two lines: the last weights and the best checkpoint."""
    lines = []
    for prefix, title in (
        ("last_", "final evaluation  last weights"),
        ("", "                  best checkpoint"),
    ):
        if f"{prefix}checkpoint" in scores:  # older runs evaluated only their best checkpoint
            spread, least, most = (
                scores.get(f"{prefix}return_{name}", math.nan) for name in ("std", "min", "max")
            )
            rate = scores.get(f"{prefix}success_rate")
            success = "" if rate is None else f"success rate {rate:.1%}, "
            lines.append(
                f"{title}  mean return {figures(scores[f'{prefix}return_mean'])} ± {figures(spread)} over "
                f"{scores.get('episodes', 0)} greedy episodes (min {figures(least)}, max {figures(most)}), "
                f"{success}{scores[f'{prefix}checkpoint']}"
            )
            if agents := by_agent(scores, f"{prefix}return_mean/"):
                lines.append(f"{'':<18}by agent  {agents}")
    return lines


def by_agent(scores: Mapping[str, Any], prefix: str) -> str:
    """Return the mean returns of agents, `a 1.0, b 2.0`, from entries with a prefix; "" without any."""
    means = {
        name.removeprefix(prefix): value
        for name, value in scores.items()
        if name.startswith(prefix)
    }
    return ", ".join(f"{agent} {figures(mean)}" for agent, mean in means.items())


def mlflow_address(state: mirror.State) -> str:
    """Return the URL of a run in MLflow, or the command that opens the MLflow UI."""
    if state.tracking_uri.startswith(("http://", "https://")):
        return f"{state.tracking_uri.rstrip('/')}/#/experiments/{state.experiment_id}/runs/{state.run_id}"
    return "rlplug ui"
