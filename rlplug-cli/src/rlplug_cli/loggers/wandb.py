"""`--log wandb`: all metrics of a run to Weights & Biases, or into files in `wandb/` for `wandb sync`.

Without an API key it works offline, and never asks for one; `WANDB_MODE` and the other variables of wandb decide.
"""

from __future__ import annotations

import os
from pathlib import Path

import wandb

from rlplug_cli.loggers.following import Follower, finite_metrics
from rlplug_core.config import make_directory
from rlplug_core.plugins import RunView, hookimpl
from rlplug_core.runs import writing

#: The directory that wandb writes to.
FOLDER = "wandb"
#: The axis of every chart.
STEP = "env_step"
_mirrors: dict[Path, Mirror] = {}


@hookimpl
def rlplug_run_start(run: RunView) -> None:
    """Continue the same run there, if it was started before."""
    _mirrors[run.path] = Mirror(run)


@hookimpl
def rlplug_run_log(run: RunView) -> None:
    _mirrors[run.path].write()


@hookimpl
def rlplug_run_end(run: RunView, status: str) -> None:
    if mirror := _mirrors.pop(run.path, None):  # a run may fail before it starts
        mirror.close(status)


class Mirror:
    """One run at Weights & Biases: its id is the run's own, its project the environment."""

    def __init__(self, run: RunView) -> None:
        config = run.config
        self.follower = Follower(run.journal)
        resumed = sum(record.kind == "start" for record in self.follower.new()) > 1
        if not resumed:
            self.follower.position = 0
        with writing(run.path / FOLDER):
            make_directory(run.path / FOLDER)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT")
            or config["env"].rpartition("/")[2].replace(":", "-"),
            name=run.name,
            id=config["uid"],
            group=config["group"],
            dir=run.path,
            resume="allow",
            # wandb asks for a key unless there is one, or a mode.
            mode=None if os.environ.get("WANDB_MODE") or wandb.api.api_key else "offline",
            config={"algorithm": config["algorithm"], "env": config["env"], **config["options"]},
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)

    def write(self) -> None:
        for record in self.follower.new():
            if metrics := finite_metrics(record):
                self.run.log({STEP: record.step, **metrics})

    def close(self, status: str) -> None:
        self.write()
        self.run.finish(exit_code=0 if status == "finished" else 1)
