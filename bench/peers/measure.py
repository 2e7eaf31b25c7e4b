"""What every measured script shares: the settings of a pair, and the one JSON line it prints."""

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

#: How many threads torch gets on either side.
THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def stored(pair: str) -> dict[str, Any]:
    """What settings.json says of a pair."""
    values: dict[str, Any] = json.loads(Path(__file__).with_name("settings.json").read_text())[pair]
    return values


def settings(default: str) -> dict[str, Any]:
    """The settings of `--pair`, with `--steps`, `--warmup`, `--seed` and `--tuned` of the command line over them."""
    chooser = argparse.ArgumentParser(add_help=False)
    chooser.add_argument("--pair", default=default)
    chosen, rest = chooser.parse_known_args()
    values = stored(chosen.pair)
    parser = argparse.ArgumentParser(parents=[chooser])
    parser.add_argument("--steps", type=int, default=values["steps"], help="timed env steps")
    parser.add_argument(
        "--warmup", type=int, default=values["warmup"], help="env steps before the clock starts"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=20, help="greedy ones of an evaluation")
    parser.add_argument(
        "--final",
        type=int,
        default=100,
        help="greedy ones of the final evaluation, where there is one",
    )
    parser.add_argument(
        "--tuned", action="store_true", help="a peer with what a user could still speed up by hand"
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
