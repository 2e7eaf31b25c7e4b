"""Signals at random moments and races of two commands on one run: the run ends like an uninterrupted one.

python -m tests.faults.moments [TRIALS [SECONDS]]      the table as Markdown; no trial starts after SECONDS
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

from tests.faults.trials import differences, is_finished, resume, run_to_end, start, wait

WORDS = (
    "run", "a2c", "CartPole-v1", "--total-timesteps", "3000", "--num-envs", "2", "--eval-every", "500",
    "--eval-episodes", "2", "--final-eval-episodes", "3", "--log-every", "100", "--checkpoint-every", "300",
    "--log", "csv",
)  # fmt: skip
RUN = (*WORDS, "--name", "hit")
RESUME = ("resume", "hit")
#: Signals that are sent one after the other within a moment.
SIGNALS = (
    (signal.SIGTERM,), (signal.SIGINT,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGKILL,),
    (signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM), (signal.SIGSTOP, signal.SIGCONT),
    (signal.SIGTERM, signal.SIGKILL),
)  # fmt: skip
#: Commands that start while the run is running.
OTHERS = (
    RESUME, RUN, ("evaluate", "hit", "--episodes", "1"), ("show", "hit"), ("compare", "runs"), ("export", "hit"),
    ("runs", "rm", "hit", "--yes"), ("runs",), ("reproduce", "hit", "--name", "again"),
)  # fmt: skip
#: The earliest and latest time of an event, as a share of the duration of a run.
EARLIEST, LATEST = 0.1, 1.1


def trial(draw: random.Random, place: Path, seconds: float) -> tuple[str, str]:
    """Send signals to a run or start another command; return a description of the event, and the error."""
    run = place / "runs" / "hit"
    for name in ("hit", "again"):
        shutil.rmtree(run.with_name(name), ignore_errors=True)
    (place / "output.txt").unlink(missing_ok=True)
    process = start(RUN, place)
    time.sleep(seconds * draw.uniform(EARLIEST, LATEST))
    if draw.random() < 0.5:
        chosen = draw.choice(SIGNALS)
        event = " ".join(number.name for number in chosen)
        for number in chosen:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, number)
                time.sleep(draw.random() * 0.1)
        codes = [wait(process)]
        allowed = {0, *(128 + number for number in chosen), -signal.SIGKILL, *(-number for number in chosen)}
    else:
        other = draw.choice(OTHERS)
        event = " ".join(other[:2] if other is RUN else other)
        codes = [wait(start(other, place)), wait(process)]
        allowed = {0, 1, 2}
    return event, _error(run, place, codes, allowed)


def _error(run: Path, place: Path, codes: list[int], allowed: set[int]) -> str:
    """Return the error after a trial."""
    output = (place / "output.txt").read_text() if (place / "output.txt").exists() else ""
    if "Traceback" in output or "--traceback" in output:
        return f"a traceback: {output[-300:]}"
    if not allowed.issuperset(codes):
        return f"code {codes}: {output[-300:]}"
    if not (run / "config.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        run_to_end(RUN, place)
    if failure := resume(run, place):
        return f"it does not continue: {failure}"
    return "; ".join(differences(run, place / "runs" / "complete")) if is_finished(run) else "it is not over"


def table(trials: int, seed: int, limit: float) -> list[str]:
    """Print a row for each kind of trial; return the errors.

    Args:
        limit: seconds after which no new trial starts.
    """
    deadline = time.monotonic() + limit
    draw = random.Random(seed)
    counts = Counter[str]()
    wrong = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run_to_end([*WORDS, "--name", "complete"], place)
        shutil.rmtree(place / "runs" / "complete")
        start_time = time.monotonic()
        run_to_end([*WORDS, "--name", "complete"], place)
        seconds = time.monotonic() - start_time
        for number in range(trials):
            if time.monotonic() > deadline:
                print(f"the time is up after {number} of {trials} trials", file=sys.stderr, flush=True)  # noqa: T201
                break
            event, found = trial(draw, place, seconds)
            counts[event] += 1
            if found:
                wrong.append(f"{event}: {found}")
                print(wrong[-1], file=sys.stderr, flush=True)  # noqa: T201
    for event, count in counts.items():
        failures = sum(error.startswith(f"{event}: ") for error in wrong)
        print(f"| {event} | {count} | {failures or 'none'} |", flush=True)  # noqa: T201 - the result of this command
    return wrong


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    trials, seconds = [int(word) for word in sys.argv[1:3]] + [200, 1200][len(sys.argv[1:3]) :]
    sys.exit(min(1, len(table(trials, int(os.environ.get("RLPLUG_SEED", "0")), seconds))))
