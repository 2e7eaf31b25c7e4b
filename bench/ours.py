"""Measure rlplug's side of a pair: train with `rlplug_core.train`, timed by its progress reports.

`python bench/ours.py a3c` prints one JSON line, like the scripts in `peers/`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).with_name("peers")))
import measure

import rlplug_core
from rlplug_core.fast.numba_loops import available
from rlplug_core.loop.events import Progress
from rlplug_core.runs.journal import read

NEVER = 10**12
#: Env steps after the timed ones: more than the steps between two progress reports.
SPARE = 60_000
#: Options that turn off logs, evaluations, checkpoints and the final evaluation during the timed part.
QUIET = {
    "log_every": NEVER,
    "eval_every": NEVER,
    "checkpoint_every": NEVER,
    "final_eval_episodes": 0,
    "eval_episodes": 20,
}
#: Settings that are options of rlplug: first those of every pair, then those of some pairs.
SHARED = ("num_envs", "seed", "learning_rate", "gamma")
ROLLOUT = ("n_steps", "ent_coef", "vf_coef", "max_grad_norm")
REPLAY = ("train_freq", "gradient_steps", "batch_size", "buffer_size", "learning_starts")
OWN: dict[str, tuple[str, ...]] = {
    "a2c": (*ROLLOUT, "gae_lambda"),
    "a3c": (*ROLLOUT, "workers"),
    "ppo": (*ROLLOUT, "gae_lambda", "batch_size", "n_epochs", "clip_range"),
    "dqn": (*REPLAY, "exploration_fraction", "exploration_final_eps", "max_grad_norm"),
    "sac": (*REPLAY, "tau"),
    "td3": (*REPLAY, "tau", "noise_sigma", "policy_delay"),
}
OWN["impala"] = (*ROLLOUT, "actors")
OWN["appo"] = (*OWN["impala"], "batch_size", "n_epochs", "clip_range")
OWN["qrdqn"] = (*OWN["dqn"], "n_quantiles")
#: Defaults of the other side as options of rlplug, so presets have no influence.
FIXED: dict[str, dict[str, Any]] = {
    "a2c": {
        "optimizer": "rmsprop",
        "normalize_advantage": False,
        "net.activation": "tanh",
        "runner": "sync",
    },
    "a3c": {
        "optimizer": "rmsprop",
        "normalize_advantage": False,
        "net.activation": "tanh",
        "gae_lambda": 1.0,
        "runner": "async",
    },
    "ppo": {"normalize_advantage": True, "net.activation": "tanh", "runner": "sync"},
    "dqn": {
        "net.activation": "relu",
        "n_step": 1,
        "double": False,
        "dueling": False,
        "runner": "sync",
        "optimizer_kwargs.eps": 1e-8,
    },
}
FIXED["impala"] = FIXED["appo"] = {
    "optimizer": "adam",
    "net.activation": "tanh",
    "runner": "decoupled",
}
FIXED["qrdqn"] = {**FIXED["dqn"], "optimizer_kwargs.eps": 0.01 / 64}  # over the batch's size
FIXED["sac"] = {
    "net.activation": "relu",
    "n_step": 1,
    "n_critics": 2,
    "policy_delay": 1,
    "runner": "sync",
}
FIXED["td3"] = {
    "net.activation": "relu",
    "n_step": 1,
    "n_critics": 2,
    "action_noise": "gaussian",
    "runner": "sync",
}


def algorithm(pair: str) -> str:
    """Return the algorithm of a pair: its name up to the first dash."""
    return pair.partition("-")[0]


def options(pair: str, setting: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a pair as options of rlplug, with spare steps because reports come by wall time."""
    name = algorithm(pair)
    named = {option: setting[option] for option in (*SHARED, *OWN[name])}
    if name in ("dqn", "qrdqn"):  # the other side counts in env steps
        updates = (
            setting["target_update_interval"] * setting["gradient_steps"] // setting["train_freq"]
        )
        named["target_update_interval"] = updates
    if name in ("sac", "td3"):  # the other side has one number for both
        named |= {
            "critic_learning_rate": setting["learning_rate"],
            "random_steps": setting["learning_starts"],
        }
    total = setting["warmup"] + setting["steps"] + setting.get("spare", SPARE)
    named["threads"] = measure.THREADS
    return {
        **QUIET,
        **FIXED[name],
        **named,
        "anneal_lr": False,
        "net.hidden": setting["hidden"],
        "total_timesteps": total,
        "eval_episodes": setting.get("final_episodes", QUIET["eval_episodes"]),
        **setting.get("options", {}),
    }


class Stopwatch:
    """Starts at the first report after the warm-up and stops at the first one at least `steps` later."""

    def __init__(self, warmup: int, steps: int) -> None:
        self.warmup = warmup
        self.wanted = steps
        self.start: tuple[int, float] | None = None
        self.end: tuple[int, float] | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.phase != "training" or self.end:
            return
        now = (progress.steps, time.perf_counter())
        if self.start is None and progress.steps >= self.warmup:
            self.start = now
        elif self.start and progress.steps >= self.start[0] + self.wanted:
            self.end = now

    def result(self) -> tuple[int, float]:
        """Return env steps and seconds between the two reports."""
        if self.start is None or self.end is None:
            raise RuntimeError("the run ended before the last timed step")
        return self.end[0] - self.start[0], self.end[1] - self.start[1]


def main() -> None:
    pair = sys.argv.pop(1)
    setting = measure.settings(pair)
    watch = Stopwatch(setting["warmup"], setting["steps"])
    with tempfile.TemporaryDirectory() as directory:
        run = rlplug_core.train(
            algorithm(pair),
            setting["env"],
            options(pair, setting),
            out=directory,
            hooks=False,
            watch=watch,
        )
        last = [record for record in read(run.journal) if record.kind == "evaluation"][-1]
    packages = ["rlplug-core", "gymnasium", "torch", "numpy", *(["numba"] if available() else [])]
    measure.report(pair, "rlplug", *watch.result(), last.data["eval/return_mean"], packages)


if __name__ == "__main__":
    main()
