"""What every measured script shares: the settings of a pair, and the one JSON line it prints."""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def settings(pair: str) -> dict[str, Any]:
    """The settings of `pair`, with `--steps`, `--warmup`, `--seed` and `--tuned` of the command line over them."""
    values: dict[str, Any] = json.loads(Path(__file__).with_name("settings.json").read_text())[pair]
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=values["steps"], help="timed env steps")
    parser.add_argument("--warmup", type=int, default=values["warmup"], help="env steps before the clock starts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tuned", action="store_true", help="a peer with what a user could still speed up by hand")
    return values | vars(parser.parse_args())


def report(pair: str, side: str, steps: int, seconds: float, mean_return: float, packages: list[str]) -> None:
    """Print the measurement as one JSON line; `rss_mb` is the peak of this process, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
    line = {
        "pair": pair, "side": side, "steps": steps, "seconds": round(seconds, 3), "steps_per_s": round(steps / seconds),
        "return_after": round(mean_return, 1), "rss_mb": round(peak),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }  # fmt: skip
    print(json.dumps(line), flush=True)
