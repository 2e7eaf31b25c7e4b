"""Measure the training speed on a GPU with the default settings of the scripts of CleanRL and LeanRL.

    python bench/on_gpu.py sac --cudagraphs --compile       # prints one JSON line
    python bench/on_gpu.py sac --device cpu
    python bench/on_gpu.py --with FOLDER                    # all four, alternating with the scripts in FOLDER

Trains with `rlplug_core.train`, timed by its progress reports after a warm-up. `peers/on_gpu.py` runs the scripts of
CleanRL and LeanRL, and its docstring says how to get them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ours import QUIET
from results import machine, revision, table, write_section

import rlplug_core
from rlplug_core.loop.events import Progress

REPLAY: dict[str, Any] = {
    "learning_starts": 1000,
    "random_steps": 1000,
    "batch_size": 256,
    "train_freq": 1,
    "gradient_steps": 1,
    "n_step": 1,
    "buffer_size": 1_000_000,
    "net.hidden": [256, 256],
    "net.activation": "relu",
}
#: Environment, steps before the clock starts, and options of each algorithm, equal to those of the other scripts.
SETTINGS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "dqn": (
        "CartPole-v1",
        3_000,
        {
            "learning_starts": 1000,
            "batch_size": 128,
            "train_freq": 10,
            "gradient_steps": 1,
            "n_step": 1,
            "buffer_size": 10_000,
            "net.hidden": [120, 84],
            "net.activation": "relu",
            "target_update_interval": 50,
            "learning_rate": 2.5e-4,
            "loss": "mse",
            "exploration_initial_eps": 0.05,
            "double": False,
            "dueling": False,
        },
    ),
    "td3": ("HalfCheetah-v5", 1_600, {**REPLAY, "policy_delay": 2}),
    "sac": ("HalfCheetah-v5", 1_600, {**REPLAY, "policy_delay": 1, "critic_learning_rate": 1e-3}),
    "ppo": (
        "HalfCheetah-v5",
        10_240,
        {
            "num_envs": 32,
            "n_steps": 64,
            "batch_size": 64,
            "n_epochs": 10,
            "net.hidden": [64, 64],
            "clip_range_vf": 0.2,
            "net.activation": "tanh",
            "normalize_reward": True,
            "net.normalize_obs": True,
        },
    ),
}
#: Options of this script, or script and options of the others, by table column.
OURS = {
    "rlplug, CPU": ["--device", "cpu"],
    "eager": [],
    "graphs": ["--cudagraphs"],
    "graphs, compiled": ["--cudagraphs", "--compile"],
}
THEIRS = {
    "CleanRL": ["cleanrl/{}.py"],
    "LeanRL": ["leanrl/{}_torchcompile.py", "--compile", "--cudagraphs"],
}
COLUMNS = (*OURS, *THEIRS)
#: Script of each algorithm and its options.
SCRIPTS = {
    "dqn": ("dqn", ["--learning-starts", "1000", "--start-e", "0.05"]),
    "td3": ("td3_continuous_action", ["--learning-starts", "1000"]),
    "sac": ("sac_continuous_action", ["--learning-starts", "1000"]),
    "ppo": ("ppo_continuous_action", ["--num-envs", "32", "--num-steps", "64"]),
}


class Stopwatch:
    """Measures from the first report after the warm-up to the first report at least `seconds` later."""

    def __init__(self, name: str, warmup: int, seconds: float, about: dict[str, object]) -> None:
        self.name = name
        self.warmup = warmup
        self.seconds = seconds
        self.about = about
        self.start: tuple[int, float] | None = None

    def __call__(self, progress: Progress) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self.start is None:
            self.start = (progress.steps, now) if progress.steps >= self.warmup else None
        elif now >= self.start[1] + self.seconds:
            speed = (progress.steps - self.start[0]) / (now - self.start[1])
            print(
                json.dumps(
                    {"algorithm": self.name, "steps_per_second": round(speed, 1), **self.about}
                ),
                flush=True,
            )
            os._exit(0)  # the rest of the run is not needed


def measure(arguments: argparse.Namespace) -> None:
    """Train one algorithm until the clock stops."""
    env, warmup, options = SETTINGS[arguments.algorithm]
    own = {
        "device": arguments.device,
        "cudagraphs": arguments.cudagraphs,
        "compile": arguments.compile,
        "threads": 1,
        "seed": 1,
    }
    watch = Stopwatch(arguments.algorithm, warmup, arguments.seconds, own)
    total = {"total_timesteps": 1_000_000}
    with tempfile.TemporaryDirectory() as directory:
        options = {**QUIET, **options, **own, **total}
        rlplug_core.train(
            arguments.algorithm, env, options, out=directory, hooks=False, watch=watch
        )


def speed(command: list[str], limit: float) -> float | None:
    """Run a command; return the steps per second of its last line, or None if it failed or took too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    found: float = json.loads(lines[-1])["steps_per_second"]
    return found


def command(way: str, algorithm: str, arguments: argparse.Namespace) -> list[str]:
    here = Path(__file__)
    seconds = ["--seconds", str(arguments.seconds)]
    if way in OURS:
        return [sys.executable, str(here), algorithm, *OURS[way], *seconds]
    env, warmup, _ = SETTINGS[algorithm]
    script, *how = THEIRS[way]
    name, flags = SCRIPTS[algorithm]
    file = arguments.scripts / script.format(name)
    timed = ["400000", "--mark", str(warmup), *seconds]
    return [
        sys.executable,
        str(here.parent / "peers" / "on_gpu.py"),
        str(file),
        env,
        *timed,
        *flags,
        *how,
    ]


def compare(arguments: argparse.Namespace) -> None:
    """Run all columns of each algorithm in turns and print the table."""
    rows = []
    chosen = [arguments.algorithm] if arguments.algorithm else list(SETTINGS)
    for algorithm in chosen:
        found: dict[str, list[float]] = {way: [] for way in COLUMNS}
        for _ in range(arguments.rounds):
            for way in COLUMNS:
                one = speed(command(way, algorithm, arguments), arguments.limit)
                print(algorithm, way, one, flush=True)
                if one is not None:
                    found[way].append(one)
        medians = [statistics.median(found[way]) if found[way] else None for way in COLUMNS]
        rows.append(
            [algorithm, *("-" if median is None else f"{median:,.0f}" for median in medians)]
        )
    about = f"{torch.cuda.get_device_name()}; {machine()}; torch {torch.__version__}; rlplug at {revision()}."
    text = f"""## Training on a GPU

`python bench/on_gpu.py --with FOLDER`

{table(["env steps per second", *COLUMNS], rows)}

Medians of {arguments.rounds} runs, which alternate; each is timed for {arguments.seconds:g} seconds. {about}"""
    print(text)
    if arguments.write:
        write_section("on_gpu", text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithm", nargs="?", choices=list(SETTINGS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cudagraphs", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=8.0, help="timed seconds of one run")
    parser.add_argument(
        "--with", dest="scripts", type=Path, help="folder with the scripts of CleanRL and LeanRL"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=100.0, help="maximum seconds of one run")
    parser.add_argument(
        "--write", action="store_true", help="also write the table into bench/RESULTS.md"
    )
    arguments = parser.parse_args()
    if arguments.scripts:
        compare(arguments)
    elif arguments.algorithm:
        measure(arguments)
    else:
        parser.error("give an algorithm, or a folder to compare --with")


if __name__ == "__main__":
    main()
