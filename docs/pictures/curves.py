"""Draw the learning curves of the pages on algorithms from what `bench/learn.py` has recorded.

    python docs/pictures/curves.py

Writes `curves-NAME.svg` for each page with a curve in `bench/learning.jsonl`: mean return in evaluation over env steps,
as the median of the seeds and the range between the lowest and the highest. Says which pictures no page shows. Look at
the pictures before you commit them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

HERE = Path(__file__).parent
PAGES = HERE.parent / "algorithms"
RECORD = HERE.parent.parent / "bench" / "learning.jsonl"
#: Names that share a page with others, and the page.
SHARED = {
    **dict.fromkeys(("apex", "ddqn", "dueling-dqn", "per-dqn", "noisy-dqn", "nstep-dqn"), "dqn"),
    "rainbow-iqn": "rainbow",
    "acer-continuous": "acer",
    "ppo-recurrent": "ppo",
    "a2c-noisy": "a2c",
    "acer-async": "acer",
    "sac-actors": "sac",
    "ppo-not-sticky": "ppo",
    "a2c-not-sticky": "a2c",
    **{f"{name}-{where}": name for name in ("appo", "impala") for where in ("inline", "ray")},
    **{f"{name}-long": name for name in ("sac", "td3", "tqc")},
}
#: Algorithms that learned from data, whose steps are updates.
OFFLINE = ("cql", "iql")
#: Environments whose evaluations are judged by how many episodes succeed.
GOALS = ("FetchReach-v4",)
#: The typeface as each text names it.
FONT = " font-family: 'DejaVu Sans', sans-serif;"
#: Points of a line at most, evenly chosen: a picture stays small, however often a run was evaluated.
POINTS = 34
#: Panels side by side that a page's width still shows in full size.
COLUMNS = 3
#: Text stays text, and the same runs give the same file.
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "rlplug"
matplotlib.rcParams["font.size"] = 9
#: Each text names all of them, which would be a third of the file.
matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans"]


#: Of one goal the steps of the evaluations, and the returns of every seed at them.
Curve = tuple[list[int], list[list[float]]]


def curves() -> dict[str, Curve]:
    """What is recorded of each goal; of several lines for a seed the last counts.

    Asynchronous workers may pass the time of an evaluation, so seeds are read at the steps of the one that has most.
    """
    lines = map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())
    last = {(line["goal"], line["seed"]): line for line in lines}
    seeds: dict[str, list[tuple[tuple[int, ...], tuple[float, ...]]]] = defaultdict(list)
    for (goal, _), line in sorted(last.items()):
        if line.get("curve"):
            steps, returns = zip(*line["curve"], strict=True)
            seeds[goal].append((steps, returns))
    found: dict[str, Curve] = {}
    for goal, pairs in seeds.items():
        every = list(max((steps for steps, _ in pairs), key=len))
        grid = [
            every[i] for i in sorted({round(i) for i in np.linspace(0, len(every) - 1, POINTS)})
        ]
        found[goal] = grid, [np.interp(grid, steps, returns).tolist() for steps, returns in pairs]
    return found


def draw(name: str, panels: dict[str, dict[str, Curve]]) -> Path:
    """One picture: a panel for each environment, in it a line for each algorithm."""
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.6 * columns, 2.6 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (env, algorithms) in zip(axes.flat, sorted(panels.items()), strict=False):
        for algorithm, (steps, seeds) in sorted(
            algorithms.items(), key=lambda item: (item[0] != name, item[0])
        ):
            returns = np.array(seeds)
            count = f" ({len(seeds)} seed{'s' * (len(seeds) > 1)})"
            (line,) = axis.plot(
                steps, np.median(returns, 0), label=algorithm + count, linewidth=1.2
            )
            axis.fill_between(
                steps,
                returns.min(0),
                returns.max(0),
                alpha=0.15,
                color=line.get_color(),
                linewidth=0,
            )
        judged = "success rate" if env in GOALS else "mean return"
        axis.set(title=env, xlabel="updates" if name in OFFLINE else "env steps", ylabel=judged)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    path = HERE / f"curves-{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = re.sub(r"(?m)^ +", "", path.read_text(encoding="utf-8"))
    text = text.replace(FONT, "").replace("<svg ", f'<svg style="{FONT.strip()}" ', 1)  # said once
    text = re.sub(r' transform="rotate\(-0 [^"]+"', "", text)  # of what is not turned
    text = re.sub(
        r'(<use [^>]+) style="stroke: #000000; stroke-width: 0.8"', r"\1", text
    )  # which the mark itself has
    text = unwrapped(re.sub(r'<g id="[^"]+"', "<g", text))  # nothing refers to a group
    path.write_text(re.sub(r' (d|x|y)="[^"]+"', coarser, text), encoding="utf-8")
    return path


def unwrapped(text: str) -> str:
    """A picture without groups that are of one thing and say nothing about it: a fifth of the file."""
    inner = re.sub(r"<g>\n(<[^\n]*/>|<text[^\n]*</text>)\n</g>\n", r"\1\n", text)
    return text if inner == text else unwrapped(inner)


def coarser(path: re.Match[str]) -> str:
    """An outline in tenths of a pixel, which are as fine as a screen shows, without spaces: a third of the file."""
    tenths = re.sub(
        r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), path[0]
    )
    return re.sub(r"\s*\b([MLQCz])\s*", r"\1", tenths)


def main() -> None:
    pictures: dict[str, dict[str, dict[str, Curve]]] = defaultdict(lambda: defaultdict(dict))
    for goal, curve in curves().items():
        algorithm, _, env = goal.partition("/")
        pictures[SHARED.get(algorithm, algorithm)][env][algorithm] = curve
    for name, panels in sorted(pictures.items()):
        path = draw(name, panels)
        shown = any(path.name in page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
        sys.stdout.write(
            f"{path.name} {path.stat().st_size:,} bytes{'' if shown else ', shown by no page'}\n"
        )


if __name__ == "__main__":
    main()
