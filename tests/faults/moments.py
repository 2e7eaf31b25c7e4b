"""Signals at random moments and races of two commands on one run: it ends like one that was left alone.

python -m tests.faults.moments [TRIALS [SECONDS]]      the table, as lines of Markdown; it ends when the time is up
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.trials import differences, done, ended, is_over, resumed, started

WORDS = (
    "run", "a2c", "CartPole-v1", "--total-timesteps", "3000", "--num-envs", "2", "--eval-every", "500",
    "--eval-episodes", "2", "--final-eval-episodes", "3", "--log-every", "100", "--checkpoint-every", "300",
    "--log", "csv",
)  # fmt: skip
RUN, RESUME = (*WORDS, "--name", "hit"), ("resume", "hit")
#: What is sent, one after the other within a moment.
SIGNALS = (
    (signal.SIGTERM,), (signal.SIGINT,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGKILL,),
    (signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM), (signal.SIGSTOP, signal.SIGCONT),
    (signal.SIGTERM, signal.SIGKILL),
)  # fmt: skip
#: Commands that start at nearly the same time as a resume or the same run.
OTHERS = (
    RESUME, RUN, ("evaluate", "hit", "--episodes", "1"), ("show", "hit"), ("compare", "runs"), ("export", "hit"),
    ("runs", "rm", "hit", "--yes"), ("runs",), ("reproduce", "hit", "--name", "again"),
)  # fmt: skip
#: The share of a whole run's time after which something happens.
EARLIEST, LATEST = 0.1, 1.1


def trial(draw: random.Random, place: Path, seconds: float) -> tuple[str, str]:
    """Let a run meet signals or another command: what it was, and what is wrong."""
    run = place / "runs" / "hit"
    for name in ("hit", "again"):
        shutil.rmtree(run.with_name(name), ignore_errors=True)
    (place / "said.txt").unlink(missing_ok=True)
    process = started(RUN, place)
    time.sleep(seconds * draw.uniform(EARLIEST, LATEST))
    if draw.random() < 0.5:
        chosen = draw.choice(SIGNALS)
        what = " ".join(number.name for number in chosen)
        for number in chosen:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, number)
                time.sleep(draw.random() * 0.1)
        codes = [ended(process)]
        allowed = {0, *(128 + number for number in chosen), -signal.SIGKILL, *(-number for number in chosen)}
    else:
        other = draw.choice(OTHERS)
        what = " ".join(other[:2] if other is RUN else other)
        codes = [ended(started(other, place)), ended(process)]
        allowed = {0, 1, 2}
    return what, _wrong(run, place, codes, allowed)


def _wrong(run: Path, place: Path, codes: list[int], allowed: set[int]) -> str:
    """Return what is wrong after a trial."""
    said = (place / "said.txt").read_text() if (place / "said.txt").exists() else ""
    if "Traceback" in said or "--traceback" in said:
        return f"a traceback: {said[-300:]}"
    if not allowed.issuperset(codes):
        return f"code {codes}: {said[-300:]}"
    if not (run / "config.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        done(RUN, place)
    if failure := resumed(run, place):
        return f"it does not continue: {failure}"
    return "; ".join(differences(run, place / "runs" / "whole")) if is_over(run) else "it is not over"


def table(trials: int, seed: int, limit: float) -> list[str]:
    """Print a line for each kind of trial; return all that is wrong.

    Args:
        limit: seconds after which no other trial starts.
    """
    deadline = time.monotonic() + limit
    draw, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        done([*WORDS, "--name", "whole"], place)
        shutil.rmtree(place / "runs" / "whole")
        began = time.monotonic()
        done([*WORDS, "--name", "whole"], place)
        seconds = time.monotonic() - began
        for number in range(trials):
            if time.monotonic() > deadline:
                print(f"the time is up after {number} of {trials} trials", file=sys.stderr, flush=True)  # noqa: T201
                break
            what, found = trial(draw, place, seconds)
            counts[what] += 1
            if found:
                wrong.append(f"{what}: {found}")
                print(wrong[-1], file=sys.stderr, flush=True)  # noqa: T201
    for what, count in counts.items():
        failures = sum(one.startswith(f"{what}: ") for one in wrong)
        print(f"| {what} | {count} | {failures or 'none'} |", flush=True)  # noqa: T201 - the table is what this is for
    return wrong


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    trials, seconds = [int(word) for word in sys.argv[1:3]] + [200, 1200][len(sys.argv[1:3]) :]
    sys.exit(min(1, len(table(trials, int(os.environ.get("RLPLUG_SEED", "0")), seconds))))
