"""Shared by all measured scripts: the settings of a pair and the JSON line with the result."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: Number of torch threads on each side.
THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def settings_of(pair: str) -> dict[str, Any]:
    """Return the settings of a pair from settings.json."""
    values: dict[str, Any] = json.loads(Path(__file__).with_name("settings.json").read_text())[pair]
    return values


def settings(default: str) -> dict[str, Any]:
    """Return the settings of `--pair`, overridden by `--steps`, `--warmup`, `--seed` and `--tuned`."""
    chooser = argparse.ArgumentParser(add_help=False)
    chooser.add_argument("--pair", default=default)
    chosen, rest = chooser.parse_known_args()
    values = settings_of(chosen.pair)
    parser = argparse.ArgumentParser(parents=[chooser])
    parser.add_argument("--steps", type=int, default=values["steps"], help="timed env steps")
    parser.add_argument(
        "--warmup", type=int, default=values["warmup"], help="env steps before the clock starts"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--tuned", action="store_true", help="use every speed setting that users of the peer have"
    )
    parser.set_defaults(pair=chosen.pair)
    return values | vars(parser.parse_args(rest))


def report(
    pair: str, side: str, steps: int, seconds: float, mean_return: float, packages: list[str]
) -> None:
    """Print the measurement as one JSON line; `rss_mb` is the peak of this process, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 * 1024 if sys.platform == "darwin" else 1024
    )
    line = {
        "pair": pair,
        "side": side,
        "steps": steps,
        "seconds": round(seconds, 3),
        "steps_per_s": round(steps / seconds),
        "return_after": round(mean_return, 1),
        "rss_mb": round(peak),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in packages},
    }
    print(json.dumps(line), flush=True)
