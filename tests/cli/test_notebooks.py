"""The guide's notebooks match its scripts, and one runs in a kernel with its live curve and its film."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from PIL import Image

from rlplug_cli.render.notebook import LiveCurve
from rlplug_core.loop.events import Progress

GUIDE = Path(__file__).parents[2] / "docs" / "guide"


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    """The script `docs/guide/notebooks.py`."""
    spec = importlib.util.spec_from_file_location("guide_notebooks", GUIDE / "notebooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebooks_of_chapters_are_current(notebooks: ModuleType) -> None:
    """`python docs/guide/notebooks.py` writes them again."""
    assert len(notebooks.CHAPTERS) == 10
    for chapter in notebooks.CHAPTERS:
        assert json.loads(chapter.with_suffix(".ipynb").read_bytes()) == json.loads(notebooks.notebook(chapter))
    assert len(list(GUIDE.glob("*.ipynb"))) == 10


def test_chapter_runs_in_a_kernel(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(GUIDE))  # a notebook imports modules of its folder
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    notebook: Any = nbformat.read(GUIDE / "chapter_02_double.ipynb", as_version=4)
    few = ('20_000, "eval_episodes": 20', '1_300, "eval_episodes": 1, "final_eval_episodes": 1')
    for cell in notebook.cells:
        cell.source = cell.source.replace(*few)
    nbformat.write(notebook, place / "chapter.ipynb")
    execute = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", "chapter.ipynb"]
    subprocess.run(execute, check=True, capture_output=True)
    notebook = nbformat.read(place / "chapter.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = [set(output.get("data", {})) for output in outputs]
    assert any("image/png" in kind for kind in kinds), "no curve"
    assert any("image/webp" in kind for kind in kinds), "no film"
    assert [output for output in outputs if output.output_type == "error"] == []
    (run,) = (place / "runs").iterdir()
    assert json.loads((run / "config.json").read_bytes())["algorithm"] == "__main__:DoubleDQN"


@pytest.mark.slow
def test_colab_notebook_runs_in_a_kernel(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    notebook: Any = nbformat.read(GUIDE.parent / "colab.ipynb", as_version=4)
    install = next(cell for cell in notebook.cells if cell.cell_type == "code")
    repository = "!git clone -q --depth 1 https://rlplug.example rlplug"
    requirements = "-r rlplug/requirements.txt"
    assert install.source == f"{repository} && python -m pip install -q {requirements}"
    notebook.cells.remove(install)  # rlplug is installed here
    for cell in notebook.cells:
        cell.source = cell.source.replace("50_000", "1_000")
    nbformat.write(notebook, place / "colab.ipynb")
    execute = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", "colab.ipynb"]
    subprocess.run(execute, check=True, capture_output=True)
    notebook = nbformat.read(place / "colab.ipynb", as_version=4)
    kinds = [set(output.get("data", {})) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/webp" in kind for kind in kinds), "no film"
    assert json.loads((place / "runs" / "first" / "config.json").read_bytes())["algorithm"] == "a3c"


def progress(steps: int, evaluation: float | None = None, phase: str = "training") -> Progress:
    return Progress(steps, 100, 10.0, 3, float(steps), evaluation, evaluation, phase)


@pytest.fixture
def drawn_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return a function that gives a curve one progress a second, and returns the steps at which it is drawn."""

    def draw(*reports: Progress, every: float = 1.0) -> list[int]:
        steps: list[int] = []
        clock = iter(range(len(reports) * 2))
        curve = LiveCurve(every, now=lambda: next(clock))
        monkeypatch.setattr(curve, "show", lambda report: steps.append(report.steps))
        for report in reports:
            curve(report)
        return steps

    return draw


def test_curve_is_drawn_if_a_step_is_new(drawn_steps: Callable[..., list[int]]) -> None:
    assert drawn_steps(progress(10), progress(10), progress(20)) == [10, 20]


def test_curve_is_drawn_rarely_and_at_the_end(drawn_steps: Callable[..., list[int]]) -> None:
    many = [progress(step) for step in range(10, 90, 10)]
    assert drawn_steps(*many, progress(99, phase="final_eval"), every=1000.0) == [10, 99]


def test_evaluation_is_one_point() -> None:
    curve = LiveCurve(every=1e9, now=lambda: 0.0)
    curve.drawn_at = 0.0
    for report in (progress(10, 5.0), progress(20, 5.0), progress(30, 7.0)):
        curve(report)
    assert curve.evaluations == [(10, 5.0), (30, 7.0)]
    assert curve.returns == [(10, 10.0), (20, 20.0), (30, 30.0)]
    assert Image.open(BytesIO(curve.png(progress(30, 7.0)))).size == (700, 300)


def test_figure_has_charts_of_loss_and_epsilon() -> None:
    """The chart shows the critic's loss rather than the policy's."""
    curve = LiveCurve(every=1e9, now=lambda: 0.0)
    curve.drawn_at = 0.0
    losses = {"loss/policy": 5.0, "loss/value": 0.25}
    for steps, epsilon in ((10, 0.9), (20, 0.8)):
        curve(replace(progress(steps), losses=losses, schedules={"schedule/epsilon": epsilon}))
    charts = curve.figure(progress(20)).axes
    assert [chart.get_ylabel() for chart in charts] == ["return", "loss", "epsilon"]
    assert [chart.lines[0].get_ydata().tolist() for chart in charts] == [[10, 20], [0.25, 0.25], [0.9, 0.8]]
