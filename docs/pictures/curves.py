"""Draw the learning curves of the pages on algorithms from run directories.

    python docs/pictures/curves.py RUNS...      # folders of runs, such as that of `bench/learn.py`

Writes `curves-NAME.svg` for each page with a finished run: mean return in evaluation over env steps, as the median of
the seeds and the range between the lowest and the highest. Of several configurations the newest is drawn. Says which
pictures no page shows. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

from rlplug_core.journal import read

HERE = Path(__file__).parent
PAGES = HERE.parent / "algorithms"
#: Names that share a page with others, and the page.
SHARED = {
    **dict.fromkeys(("ddqn", "dueling-dqn", "per-dqn", "noisy-dqn", "nstep-dqn"), "dqn"),
    "rainbow-iqn": "rainbow", "a3c": "a2c", "acer-continuous": "acer",
}  # fmt: skip
#: What is trained for a check and not for a curve.
LEFT_OUT = ("CartPole-v0",)
#: Text stays text, and the same runs give the same file.
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "rlplug"
matplotlib.rcParams["font.size"] = 9


@dataclass(frozen=True)
class Curve:
    """One run: when it was evaluated, and what came out."""

    algorithm: str
    env: str
    group: str
    created: float
    steps: tuple[int, ...]
    returns: tuple[float, ...]


def curves(folder: Path) -> Iterator[Curve]:
    """Of all finished runs below a folder."""
    for config in sorted(folder.rglob("config.json")):
        about = json.loads(config.read_text(encoding="utf-8"))
        env = about["env"].rpartition(":")[2]
        records = list(read(config.with_name("journal.jsonl")))
        if records[-1].data.get("status") == "finished" and env not in LEFT_OUT:
            found = [(each.step, each.data["eval/return_mean"]) for each in records if each.kind == "evaluation"]
            steps, returns = zip(*found, strict=True)
            yield Curve(about["algorithm"], env, about["group"], about["created"], steps, returns)


def newest(found: list[Curve]) -> list[Curve]:
    """The curves of the configuration that was trained last."""
    group = max(found, key=lambda curve: curve.created).group
    return [curve for curve in found if curve.group == group]


def draw(name: str, panels: dict[str, dict[str, list[Curve]]]) -> Path:
    """One picture: a panel for each environment, in it a line for each algorithm."""
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 2.6), squeeze=False, layout="constrained"
    )
    for axis, (env, algorithms) in zip(axes[0], sorted(panels.items()), strict=True):
        for algorithm, runs in sorted(algorithms.items(), key=lambda item: (item[0] != name, item[0])):
            seeds = newest(runs)
            returns = np.array([curve.returns for curve in seeds])
            count = f" ({len(seeds)} seed{'s' * (len(seeds) > 1)})"
            (line,) = axis.plot(seeds[0].steps, np.median(returns, 0), label=algorithm + count, linewidth=1.2)
            axis.fill_between(seeds[0].steps, returns.min(0), returns.max(0), alpha=0.15, color=line.get_color())
        axis.set(title=env, xlabel="env steps", ylabel="mean return")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    path = HERE / f"curves-{name}.svg"
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    pictures: dict[str, dict[str, dict[str, list[Curve]]]]
    pictures = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for folder in parser.parse_args().folders:
        for curve in curves(folder):
            pictures[SHARED.get(curve.algorithm, curve.algorithm)][curve.env][curve.algorithm].append(curve)
    for name, panels in sorted(pictures.items()):
        path = draw(name, panels)
        shown = any(path.name in page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
        sys.stdout.write(f"{path.name} {path.stat().st_size:,} bytes{'' if shown else ', shown by no page'}\n")


if __name__ == "__main__":
    main()
