"""Each file operation of a command fails in each possible way: it reports the error, and finishes if started again.

    python -m tests.faults.files [SHARE [COMMAND…]]      the table as Markdown; a share below 1 tests this share

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.trials import Fault, differences, resume, run_to_end, start, wait

#: The error number and the kinds of operations of each fault; `faulty.c` lists the letters.
FAULTS = {
    "kill": (0, "ocpwsr"), "ENOSPC": (errno.ENOSPC, "cpw"), "EIO": (errno.EIO, "ocpwsr"),
    "ESTALE": (errno.ESTALE, "ocpwsr"), "EACCES": (errno.EACCES, "ocp"), "EMFILE": (errno.EMFILE, "oc"),
}  # fmt: skip
SHORT = (
    "--total-timesteps", "60", "--num-envs", "2", "--eval-episodes", "2", "--final-eval-episodes", "3",
    "--log-every", "10", "--checkpoint-every", "20", "--keep-checkpoints", "1", "--n-steps", "5", "--log", "csv",
)  # fmt: skip
CHAIN = ("a2c", "rlplug_core.testing.envs:Chain", *SHORT)
RUN = ("run", *CHAIN, "--eval-every", "30", "--name", "hit")
#: The run before `push`: a shared agent has no code, so its environment must be an installed one.
CARTPOLE = ("run", "a2c", "CartPole-v1", *SHORT, "--name", "hit")


@dataclass(frozen=True)
class Case:
    """A command with faults, the command before it, and the directory that it makes completely or not at all."""

    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    makes: str = ""


MORE = ("resume", "hit", "--total-timesteps", "120")
CASES = {
    "run": Case(RUN),
    "resume": Case(MORE, before=RUN),
    "export": Case(("export", "hit"), before=RUN, makes="hit/export"),
    "push": Case(("push", "hit", "runs/shared"), before=CARTPOLE, makes="shared"),
    "sweep": Case(("sweep", *CHAIN, "--eval-every", "30", "--seeds", "2", "--jobs", "1", "--name", "hit")),
    "evolve": Case(
        ("evolve", *CHAIN, "--learning-rate", "1e-4..1e-2:log", "--members", "2", "--every", "30", "--jobs", "1",
         "--name", "hit")
    ),
}  # fmt: skip
#: Files with times and paths, which differ between equal runs.
VARYING = ("config.json", "journal.jsonl", "lock", "events.json", "manifest.json", "sweep.json", "compare.html", ".txt")


@dataclass
class Outcome:
    """The results of the faults of one kind."""

    command: str
    fault: str
    trials: int = 0
    #: Commands that succeeded despite the fault: they may ignore files that they do not need.
    survived: int = 0
    wrong: list[str] = field(default_factory=list)


def compile_library(place: Path) -> Path:
    """Build the library in `place`, and preload it in all processes started later."""
    library = place / "faulty.so"
    source = Path(__file__).with_name("faulty.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = str(library)
    return library


def operations(case: Case, library: Path, place: Path) -> str:
    """The kinds of a command's file operations in their order; its results are moved to `complete`."""
    place.mkdir()
    if case.before:
        run_to_end(case.before, place)
        shutil.copytree(place / "runs", place / "before")
    count = place / "count"
    process = start(case.words, place, Fault(0, -1, str(library), str(count)))
    assert wait(process) == 0, (place / "output.txt").read_text()
    (place / "runs").rename(place / "complete")
    return count.read_text()


def trial(case: Case, fault: Fault, place: Path) -> tuple[bool, str]:
    """Start a command with a fault, then again without; return whether it succeeded, and the error if there is one."""
    runs = place / "runs"
    output = place / "output.txt"
    shutil.rmtree(runs, ignore_errors=True)
    if case.before:
        shutil.copytree(place / "before", runs)
    output.unlink(missing_ok=True)
    code = wait(start(case.words, place, fault))
    if fault.error and (wrong := _unclear(code, output.read_text())):
        return code == 0, wrong
    if failure := _continue(case, code, place):
        return False, f"it does not continue: {failure}"
    return code == 0, "; ".join(directory_differences(runs, place / "complete"))


def _continue(case: Case, code: int, place: Path) -> str:
    """Continue after a fault; return the output if that fails."""
    run = place / "runs" / "hit"
    if case.words[0] == "run" and (run / "config.json").exists():
        return resume(run, place)
    if code == 0 or (case.makes and (place / "runs" / case.makes).exists()):
        return ""
    return "" if wait(start(case.words, place)) == 0 else (place / "output.txt").read_text()[-300:]


def directory_differences(runs: Path, complete: Path) -> list[str]:
    """Return the differences between the directories of a command with a fault and of one without."""
    wrong = []
    for checkpoints in complete.rglob("checkpoints"):
        run = checkpoints.parent.relative_to(complete)
        wrong += [f"{run}: {difference}" for difference in differences(runs / run, complete / run)]
    found = _names(runs)
    expected = _names(complete)
    wrong += [f"{name} is missing" for name in sorted(expected - found)]
    wrong += [f"{name} was left" for name in sorted(found - expected) if not Path(name).name.startswith("error")]
    same = [name for name in sorted(found & expected) if not name.endswith((*VARYING, ".parquet", ".csv"))]
    return wrong + [f"{name} differs" for name in same if (runs / name).read_bytes() != (complete / name).read_bytes()]


def _names(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


def _unclear(code: int, output: str) -> str:
    """Return the error in the output or the code of a command; empty if there is none."""
    if "Traceback" in output:
        return f"a traceback: {output[-200:]}"
    sentences = [line for line in output.splitlines() if line.startswith("rlplug: ")]
    if code == 0:
        return ""
    return (
        "" if code in (1, 2) and sentences and "; " in sentences[-1] else f"no way out (code {code}): {output[-200:]}"
    )


def table(share: float = 1.0, names: Sequence[str] = (), seed: int = 0) -> list[Outcome]:
    """Test each operation of each command with each of its faults, or a share of them."""
    draw = random.Random(seed)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(Path(folder))
        for name in names or CASES:
            case = CASES[name]
            place = Path(folder) / name
            kinds = operations(case, library, place)
            print(f"{name}: {len(kinds)} operations: {dict(Counter(kinds))}", file=sys.stderr, flush=True)  # noqa: T201
            for fault, (error, letters) in FAULTS.items():
                outcome = Outcome(name, fault)
                for number, kind in enumerate(kinds):
                    if kind in letters and draw.random() < share:
                        survived, wrong = trial(case, Fault(number, error, str(library)), place)
                        outcome.trials += 1
                        outcome.survived += survived
                        outcome.wrong += [f"operation {number} ({kind}): {wrong}"] if wrong else []
                outcomes.append(outcome)
                print(row(outcome), flush=True)  # noqa: T201 - the result of this command
                for wrong in outcome.wrong:
                    print(f"  {wrong}", file=sys.stderr, flush=True)  # noqa: T201
    return outcomes


def row(outcome: Outcome) -> str:
    """A row of the table."""
    return f"| {outcome.command} | {outcome.fault} | {outcome.trials} | {outcome.survived} | {len(outcome.wrong)} |"


if __name__ == "__main__":
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    found = table(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0, sys.argv[2:])
    sys.exit(min(1, sum(len(outcome.wrong) for outcome in found)))
