"""Write the ten chapters as notebooks next to their scripts: `python docs/guide/notebooks.py`.

A notebook has the cells of its script. The last cell, which trains and prints, is replaced by cells with a live curve
and a video. Notebooks have no outputs. This script needs `jupytext`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

GUIDE = Path(__file__).parent
CHAPTERS = sorted(GUIDE.glob("chapter_*.py"))
CURVE = """\
## Train

The curve grows during the training, for about a minute. Change a cell above, run it, and train again."""
TRAIN = """\
from rlplug_cli.render.notebook import LiveCurve
from rlplug_core import train

options = {{"total_timesteps": 20_000, "eval_episodes": 20, "seed": 1}}
run = train({learner}, "CartPole-v1", options, watch=LiveCurve())
run"""
FILM = """\
from IPython.display import Image

print(run.play(video="{name}.webp"))
Image(filename="{name}.webp", format="webp")"""


def notebook(chapter: Path) -> str:
    """Return the text of a chapter's notebook; the same script gives the same text."""
    document: Any = jupytext.reads(chapter.read_text(encoding="utf-8"), fmt="py:percent")
    *cells, last_cell = document.cells
    learner = re.search(r'lesson\("\w+:(\w+)"\)', last_cell.source)
    (by_hand,) = (cell for cell in cells if "def by_hand(" in cell.source)
    assert learner, f"{chapter.name} does not end with a call of lesson()"
    by_hand.source += "\n\n\nby_hand()"
    document.cells = [
        *cells,
        new_markdown_cell(CURVE),
        new_code_cell(TRAIN.format(learner=learner[1])),
        new_markdown_cell("This video shows the trained agent:"),
        new_code_cell(FILM.format(name=chapter.stem)),
    ]
    for number, cell in enumerate(document.cells):
        cell.id = f"cell-{number}"
        cell.metadata.clear()
    document.metadata.clear()
    document.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.validate(document)
    return str(nbformat.writes(document)) + "\n"


if __name__ == "__main__":
    for path in CHAPTERS:
        path.with_suffix(".ipynb").write_text(notebook(path), encoding="utf-8")
