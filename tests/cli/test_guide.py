"""The chapters of the guide run, and learn the same weights as the packaged algorithms that they name.

Each chapter runs like a reader runs it, but for fewer steps. Then the first command of its last section runs for the
same number of steps: both must have learned exactly the same weights.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlplug_cli.app import app
from rlplug_core.batches import Transitions
from rlplug_core.fast.losses import FastLosses
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.checkpoint import Checkpoints
from tests.cli.conftest import Result
from tests.cli.test_docs import Command, assert_runs, blocks, commands, options
from tests.tables import for_each

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGE = GUIDE / "README.md"
CHAPTERS = sorted(GUIDE.glob("chapter_*.py"))
#: The first chapter, and the one without a comparison.
QUICK = [path for path in CHAPTERS if path.stem in ("chapter_01_dqn", "chapter_07_distributional")]
#: Learning starts at 1,000 env steps and continues for two bursts, so the target network is updated twice.
STEPS = 1_300
SHORT = ("--total-timesteps", str(STEPS), "--eval-episodes", "1", "--final-eval-episodes", "0", "--name", "theirs")
#: The options of chapter 7 that C51 does not have by default.
SWITCHES = {"double": True, "dueling": True, "noisy": "factorized", "n_step": 3}


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let chapters import each other by name, like scripts of one folder, and undo it afterwards."""
    monkeypatch.syspath_prepend(str(GUIDE))
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    for path in GUIDE.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)


def commands_named_in(chapter: Path) -> list[str]:
    """Return the commands that a chapter names, without `rlplug`."""
    text = chapter.read_text(encoding="utf-8")
    command_lines = re.findall(r"(?:`|^#     )rlplug (run [^`\n]+)(?:`|$)", text, re.M)
    assert len(command_lines) == text.count("rlplug run"), "a command is broken by the end of a line"
    return command_lines


def weights(directory: Path) -> dict[str, torch.Tensor]:
    """Return the weights of both networks at the end of a run."""
    _, components, _, _ = Checkpoints(directory / "checkpoints").load(("final",), "learner")
    return {
        key: value for key, value in components["learner"].items() if key.startswith(("q_network.", "target_network."))
    }


@pytest.mark.parametrize(
    "chapter",
    [*QUICK, *(pytest.param(path, marks=pytest.mark.slow) for path in CHAPTERS if path not in QUICK)],
    ids=lambda path: path.stem,
)
def test_chapter_learns_the_weights_of_the_packaged_algorithm(
    chapter: Path,
    place: Path,
    rlplug: Callable[..., Result],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", [chapter.name, "--total-timesteps", str(STEPS)])
    runpy.run_path(str(chapter), run_name="__main__")
    output = capsys.readouterr().out
    (mine,) = (place / "runs").iterdir()
    assert re.search(rf"^ +{STEPS:,} +[\d.]+  #+$", output, re.M)
    assert f"{mine.name}: its best weights return" in output
    if not commands_named_in(chapter):
        assert chapter.stem == "chapter_07_distributional"
        return
    # Chapters use autograd, which rounds differently from the fast losses.
    monkeypatch.setattr(FastLosses, "_reason_for_autograd", lambda *_: "like a chapter")
    result = rlplug(*shlex.split(commands_named_in(chapter)[0]), *SHORT)
    assert result.code == 0, result.err
    actual = weights(mine)
    expected = weights(place / "runs" / "theirs")
    assert actual.keys() == expected.keys()
    assert [key for key in actual if not torch.equal(actual[key], expected[key])] == []


def test_c51_chapter_has_the_loss_of_the_packaged_algorithm() -> None:
    mine = Plan.make("chapter_07_distributional:C51", "CartPole-v1", {})
    theirs = Plan.make("c51", "CartPole-v1", {**SWITCHES, "v_min": 0.0, "v_max": 100.0})
    env = mine.make_env(1)
    learners: list[Any] = [plan.make_learner(env.spec) for plan in (mine, theirs)]
    env.close()
    generator = torch.Generator().manual_seed(0)
    obs, following = torch.randn(2, 64, 4, generator=generator)
    action = torch.randint(2, (64,), generator=generator)
    reward, discount = torch.rand(2, 64, generator=generator)
    weight = torch.rand(64, generator=generator)
    index = torch.arange(64)
    batch = Transitions(weight, None, obs, action, reward, discount, following, index, {})
    chapter, packaged = learners
    loss = chapter.loss(replace(batch, share=None, extras=chapter.draws(batch)))[0]
    noise = packaged.q_network.noise(packaged.generator, 3)
    assert torch.equal(loss, packaged.loss(batch, noise, packaged.config)[0])
    assert loss > 1


@for_each("chapter", CHAPTERS)
def test_options_of_chapters_exist(chapter: Path) -> None:
    words = {word for line in commands_named_in(chapter) for word in line.split() if word.startswith("--")}
    assert words <= set(options(app))


@pytest.mark.slow
def test_commands_of_the_page_run(place: Path) -> None:
    """Only those that train a chapter's learner by the command line; the test above runs the chapters."""
    (place / "docs").symlink_to(GUIDE.parent)
    text = PAGE.read_text(encoding="utf-8")
    shown = [command for block in blocks(text) for command in commands(block)]
    assert len(shown) == 3
    for command in shown:
        script = re.match(r"python (\S+)", command.line)
        if script:
            assert place / script[1] in [place / "docs" / "guide" / path.name for path in CHAPTERS]
        else:
            assert_runs(Command(command.line))


def test_page_links_every_chapter() -> None:
    text = PAGE.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [target for target in targets if not (GUIDE / target.partition("#")[0]).exists()] == []
    assert [target for target in targets if target.endswith(".py")] == [path.name for path in CHAPTERS]
