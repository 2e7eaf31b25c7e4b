"""What the benchmarks share: markdown tables, a description of the machine, and the sections of RESULTS.md."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")
#: What measuring writes into the repository.
RECORDS = (
    "bench/RESULTS.md",
    "bench/LEARNING.md",
    "bench/learning.jsonl",
    "bench/defaults.jsonl",
    "bench/halfcheetah.jsonl",
    "bench/peers/rows.json",
)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def interquartile_mean(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The mean over the last axis without a quarter of the scores, rounded down, at either end."""
    ordered = np.sort(np.asarray(scores, np.float64), -1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(-1))


#: What the flags of a processor call the instructions by which numpy's and torch's libraries go, the widest first.
WIDTHS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def machine() -> str:
    """Cores, processor with its family and widest instructions, system and Python, in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    told = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in reversed(lines))
    }
    widest = next(
        (name for flag, name in WIDTHS.items() if flag in told.get("flags", "").split()), ""
    )
    kind = ", ".join(
        filter(None, (told.get("cpu family") and f"family {told['cpu family']}", widest))
    )
    model = told.get("model name", platform.processor()) + (f" ({kind})" if kind else "")
    system = f"{platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, {model}, {system}, Python {platform.python_version()}"


def revision() -> str:
    """The commit that is measured, marked where the working tree differs from it in more than what is recorded here."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    changed = _git(
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        *(f":!{name}" for name in RECORDS),
    )
    return f"{commit}-dirty" if changed else commit or "unknown"


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def write_section(name: str, text: str) -> None:
    """Replace the section `name` of RESULTS.md, between its two marker comments, or add it at the end."""
    begin = f"<!-- {name}: begin -->"
    end = f"<!-- {name}: end -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Results\n"
    if begin in old and end in old:
        head, rest = old.split(begin, 1)
        new = head + section + rest.split(end, 1)[1]
    else:
        new = old.rstrip() + "\n\n" + section + "\n"
    RESULTS.write_text(new, encoding="utf-8")
