"""Every file operation of a run fails in turn, in every way that it can: the run says so, and goes on afterwards.

    python -m tests.faults.files [SHARE]      the table, as lines of Markdown; a share below 1 draws that many trials

It needs Linux and a C compiler, for `faulty.c`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.trials import Fault, differences, done, ended, resumed, started

#: What may befall each kind of operation; `faulty.c` says which letter is which.
FAULTS = {
    "kill": (0, "ocpwsr"), "ENOSPC": (errno.ENOSPC, "cpw"), "EIO": (errno.EIO, "ocpwsr"),
    "EACCES": (errno.EACCES, "ocp"), "EMFILE": (errno.EMFILE, "oc"),
}  # fmt: skip
WORDS = (
    "run", "a2c", "rlplug_core.testing.envs:Chain", "--total-timesteps", "60", "--num-envs", "2", "--eval-every", "30",
    "--eval-episodes", "2", "--final-eval-episodes", "3", "--log-every", "10", "--checkpoint-every", "20",
    "--keep-checkpoints", "1", "--n-steps", "5", "--log", "csv",
)  # fmt: skip


@dataclass
class Outcome:
    """What came of the faults of one kind."""

    fault: str
    trials: int = 0
    #: Runs that went on to their end all the same, which may ignore what they do not need.
    survived: int = 0
    wrong: list[str] = field(default_factory=list)


def compiled(place: Path) -> Path:
    """The library, built into `place`; every process started from here on has it."""
    library = place / "faulty.so"
    source = Path(__file__).with_name("faulty.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = str(library)
    return library


def operations(library: Path, place: Path) -> str:
    """The kinds of a run's file operations in their order; the run is `runs/whole`."""
    count = place / "count"
    process = started([*WORDS, "--name", "whole"], place, Fault(0, -1, str(library), str(count)))
    assert ended(process) == 0, (place / "said.txt").read_text()
    return count.read_text()


def trial(fault: Fault, place: Path, whole: Path) -> tuple[bool, str]:
    """Let a run meet a fault, then go on without one: whether it came to its end, and what is wrong if anything is."""
    run, said = place / "runs" / "hit", place / "said.txt"
    shutil.rmtree(run, ignore_errors=True)
    said.unlink(missing_ok=True)
    command = [*WORDS, "--name", "hit"]
    code = ended(started(command, place, fault))
    if fault.error and (wrong := _unclear(code, said.read_text())):
        return code == 0, wrong
    if not (run / "config.json").exists():
        done(command, place)
    if failure := resumed(run, place):
        return False, f"it does not continue: {failure}"
    return code == 0, "; ".join(differences(run, whole))


def _unclear(code: int, said: str) -> str:
    """Return what is wrong with the way in which a run reacted, empty where it was right."""
    if "Traceback" in said:
        return f"a traceback: {said[-200:]}"
    sentences = [line for line in said.splitlines() if line.startswith("rlplug: ")]
    if code == 0:
        return ""
    return "" if code in (1, 2) and sentences and "; " in sentences[-1] else f"no way out (code {code}): {said[-200:]}"


def table(share: float = 1.0, seed: int = 0) -> list[Outcome]:
    """Every operation × every fault that can befall it, or a share of them."""
    draw, outcomes = random.Random(seed), []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        library = compiled(place)
        kinds = operations(library, place)
        print(f"{len(kinds)} operations: {dict(Counter(kinds))}", file=sys.stderr, flush=True)  # noqa: T201
        for name, (error, letters) in FAULTS.items():
            outcome = Outcome(name)
            for number, kind in enumerate(kinds):
                if kind in letters and draw.random() < share:
                    survived, wrong = trial(Fault(number, error, str(library)), place, place / "runs" / "whole")
                    outcome.trials += 1
                    outcome.survived += survived
                    outcome.wrong += [f"operation {number} ({kind}): {wrong}"] if wrong else []
            outcomes.append(outcome)
            print(row(outcome), flush=True)  # noqa: T201 - the table is what this is for
            for wrong in outcome.wrong:
                print(f"  {wrong}", file=sys.stderr, flush=True)  # noqa: T201
    return outcomes


def row(outcome: Outcome) -> str:
    """A line of the table."""
    return f"| {outcome.fault} | {outcome.trials} | {outcome.survived} | {len(outcome.wrong)} |"


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    found = table(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    sys.exit(sum(len(outcome.wrong) for outcome in found))
