"""Shared by all benchmarks: Markdown tables, the description of the machine, the sections of RESULTS.md."""

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
#: Files of the repository that the benchmarks write.
RECORDS = (
    "bench/RESULTS.md",
    "bench/LEARNING.md",
    "bench/learning.jsonl",
    "bench/defaults.jsonl",
    "bench/peers/rows.json",
)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def interquartile_mean(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the mean over the last axis without the lowest and the highest quarter of the scores (rounded down)."""
    ordered = np.sort(np.asarray(scores, np.float64), -1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(-1))


def bootstrap(
    scores: npt.NDArray[np.float64], seed: int, draws: int = 20_000
) -> npt.NDArray[np.float64]:
    """Return interquartile means of bootstrap samples of the seeds' `scores` (Agarwal et al., 2021, arXiv:2108.13264).

    Each table row is one task, so its seeds are the only stratum.
    """
    picks = np.random.default_rng(seed).integers(len(scores), size=(draws, len(scores)))
    return interquartile_mean(scores[picks])


#: Names of the vector instructions that select the kernels of NumPy and torch, by processor flag, widest first.
WIDTHS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def machine() -> str:
    """Return cores, processor with family and widest vector instructions, system and Python in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu_info = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in reversed(lines))
    }
    widest = next(
        (name for flag, name in WIDTHS.items() if flag in cpu_info.get("flags", "").split()), ""
    )
    kind = ", ".join(
        filter(None, (cpu_info.get("cpu family") and f"family {cpu_info['cpu family']}", widest))
    )
    model = cpu_info.get("model name", platform.processor()) + (f" ({kind})" if kind else "")
    system = f"{platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, {model}, {system}, Python {platform.python_version()}"


def revision() -> str:
    """Return the measured commit; `-dirty` if the working tree has other changes than the files in `RECORDS`."""
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
    """Replace the section `name` of RESULTS.md between its two marker comments, or append it."""
    start = f"<!-- {name}: start -->"
    end = f"<!-- {name}: end -->"
    section = f"{start}\n{text.strip()}\n{end}"
    old = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "# Results\n"
    if start in old and end in old:
        head, rest = old.split(start, 1)
        new = head + section + rest.split(end, 1)[1]
    else:
        new = old.rstrip() + "\n\n" + section + "\n"
    RESULTS.write_text(new, encoding="utf-8")
