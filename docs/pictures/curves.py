"""Draw the learning curves of the pages on algorithms from the records of `bench/learn.py`.

    python docs/pictures/curves.py

Writes `curves-NAME.svg` for each page with a curve in `bench/learning.jsonl`: mean return in evaluation over env steps,
as the median of the seeds and the range between the lowest and the highest. Prints which pictures are not on any page.
Look at the pictures before you commit them.
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
    **{f"{name}-{place}": name for name in ("appo", "impala") for place in ("inline", "ray")},
    **{f"{name}-long": name for name in ("sac", "td3", "tqc")},
}
#: Algorithms that learned from data; their steps are updates.
OFFLINE = ("cql", "iql")
#: Environments with a success rate instead of a return.
GOALS = ("FetchReach-v4",)
#: The typeface in the style of each text.
FONT = " font-family: 'DejaVu Sans', sans-serif;"
#: The maximum number of points of a line, evenly spaced, so that a picture of many evaluations stays small.
POINTS = 34
#: Number of panels that fit into the width of a page.
COLUMNS = 3
#: Keep text as text, and give the same file for the same runs.
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "rlplug"
matplotlib.rcParams["font.size"] = 9
#: Each text contains the list of fonts; the default list would be a third of the file.
matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans"]


#: The steps of the evaluations of a goal, and the returns of every seed at these steps.
Curve = tuple[list[int], list[list[float]]]


def curves() -> dict[str, Curve]:
    """Return the curve of each goal; the last of several lines for a seed counts.

    Asynchronous workers may miss the step of an evaluation, so all seeds use the steps of the seed with the most.
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
    """Draw one picture: a panel for each environment with a line for each algorithm."""
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
    text = text.replace(FONT, "").replace("<svg ", f'<svg style="{FONT.strip()}" ', 1)  # once
    text = re.sub(r' transform="rotate\(-0 [^"]+"', "", text)  # a rotation by zero
    text = re.sub(
        r'(<use [^>]+) style="stroke: #000000; stroke-width: 0.8"', r"\1", text
    )  # the mark has the same style
    text = unwrap_groups(re.sub(r'<g id="[^"]+"', "<g", text))  # nothing refers to a group
    path.write_text(re.sub(r' (d|x|y)="[^"]+"', round_numbers, text), encoding="utf-8")
    return path


def unwrap_groups(text: str) -> str:
    """Return a picture without groups of one element, which are a fifth of the file."""
    inner = re.sub(r"<g>\n(<[^\n]*/>|<text[^\n]*</text>)\n</g>\n", r"\1\n", text)
    return text if inner == text else unwrap_groups(inner)


def round_numbers(path: re.Match[str]) -> str:
    """Return an outline rounded to tenths of a pixel and without spaces, which saves a third of the file."""
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
            f"{path.name} {path.stat().st_size:,} bytes{'' if shown else ', not on any page'}\n"
        )


if __name__ == "__main__":
    main()
