"""The share of each function in a raw py-spy profile: `python bench/profile_shares.py profile.txt [part of a path]`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from results import table


def shares(lines: list[str], part: str) -> list[tuple[str, float, float]]:
    """(function, percent with what it calls, percent alone), largest first; only frames with `part` in their path."""
    total = 0
    inside = Counter[str]()
    alone = Counter[str]()
    for line in lines:
        stack, count = line.rsplit(" ", 1)
        frames = [frame.rsplit(":", 1)[0] for frame in stack.split(";")]
        total += int(count)
        for frame in {frame for frame in frames if part in frame}:
            inside[frame] += int(count)
        alone[frames[-1]] += int(count)
    return [
        (frame, 100 * count / total, 100 * alone[frame] / total)
        for frame, count in inside.most_common(40)
    ]


if __name__ == "__main__":
    found = shares(
        Path(sys.argv[1]).read_text().splitlines(), sys.argv[2] if len(sys.argv) > 2 else ""
    )
    rows = [(f"`{name})`", f"{inside:.1f}", f"{alone:.1f}") for name, inside, alone in found]
    print(table(["function", "% with calls", "% alone"], rows))
