"""`rlplug show`, the list of runs, and answers to commands of other libraries."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rlplug_cli.commands.runs import HEADER, OPTIONAL_COLUMNS
from rlplug_cli.mlflow import hook
from rlplug_cli.render.live import display
from rlplug_cli.render.tables import table
from rlplug_cli.render.trace import Trace
from rlplug_cli.sweep.display import _fitting_table, short_names
from rlplug_core.runs.api import train
from tests.cli.conftest import Result

CHAIN = "rlplug_core.testing.envs:Chain"
SHORT = {"total_timesteps": 60, "eval_every": 30, "eval_episodes": 2, "final_eval_episodes": 2}


@pytest.fixture
def run_path(place: Path) -> Path:
    train("a2c", CHAIN, SHORT, out=place / "runs", name="one", hooks=False)
    return place / "runs" / "one"


def test_show_describes_a_run(run_path: Path, rlplug: Callable[..., Result]) -> None:
    result = rlplug("show", "one")
    assert result.code == 0, result.err
    facts = dict(line.split(maxsplit=1) for line in result.out.splitlines() if line and not line.startswith(" "))
    assert facts["algorithm"] == "a2c"
    assert facts["status"] == "finished"
    steps = json.loads(rlplug("show", "one", "--json").out)["steps"]
    assert facts["steps"].startswith(f"{steps} of 60 in ")
    assert set(facts["evaluations"].split()[0]) <= set("▁▂▃▄▅▆▇█")
    assert facts["final"].startswith("last weights ")
    assert "resume" in facts["resume"]
    assert facts["resume"].endswith("rlplug resume one --total-timesteps 120")
    assert "MB in runs/one" in facts["disk"]
    names = sorted(path.name for path in (run_path / "checkpoints").iterdir())
    assert [line.split()[1] for line in result.out.splitlines() if line.startswith("checkpoint ")] == names
    option = next(line for line in result.out.splitlines() if line.startswith("eval_every "))
    assert option.split() == ["eval_every", "30", "option"]
    content = json.loads(rlplug("show", "one", "--json").out)
    files = [path for path in run_path.rglob("*") if path.is_file()]
    assert content["bytes"] == sum(path.stat().st_size for path in files)
    assert len(content["evaluations"]) == 2


def test_info_of_a_run_names_show(run_path: Path, rlplug: Callable[..., Result]) -> None:
    result = rlplug("info", "one")
    assert (result.code, result.err) == (2, "rlplug: one is a run; type: rlplug show one\n")


def test_show_and_info_of_an_export_name_play(run_path: Path, rlplug: Callable[..., Result]) -> None:
    assert rlplug("export", "one", "--out", "mine").code == 0
    message = "mine is an exported policy, which mine/README.md describes; type: rlplug play mine"
    for command in ("info", "show"):
        result = rlplug(command, "mine")
        assert (result.code, result.err) == (2, f"rlplug: {message}\n")
    for words in (("compare",), ("plot",), ("record", "--steps", "9", "-o", "a.npz"), ("reproduce",), ("sync",)):
        result = rlplug(words[0], "mine", *words[1:])
        assert result.code == 2
        assert "mine is an exported policy, which has no record of its training; name the run instead" in result.err


def test_runs_are_listed_newest_first_and_removed_by_pattern(
    run_path: Path, place: Path, rlplug: Callable[..., Result]
) -> None:
    for number, name in enumerate(("x1", "x[1]", "pix-1", "pix-2")):
        (place / "runs" / name).mkdir()
        config = json.loads((run_path / "config.json").read_text())
        config["created"] += number + 1
        (place / "runs" / name / "config.json").write_text(json.dumps(config))
    assert rlplug("runs", "rm", "x[1]", "--yes").out == "deleted runs/x[1]\n"  # not x1, which matches the pattern
    assert rlplug("runs", "rm", "x[1]", "--yes").out == "deleted runs/x1\n"
    names = [line.split()[0] for line in rlplug("runs").out.splitlines()[1:]]
    assert names == ["pix-2", "pix-1", "one"]
    assert [run["name"] for run in json.loads(rlplug("runs", "--json", "--limit", "1").out)] == ["pix-2"]
    assert rlplug("runs", "rm", "pix*", "--yes").code == 0
    assert [path.name for path in (place / "runs").iterdir()] == ["one"]
    result = rlplug("runs", "rm", "pix*", "--yes")
    assert (result.code, "no run in runs/ matches pix*" in result.err) == (2, True)


def test_80_columns_show_status_and_seed() -> None:
    row = ("ppo-MountainCarContinuous-v0-20261128-101112", "interrupted", "ppo", "MountainCarContinuous-v0", "12",
           "1,000,000/1,000,000", "-123.4", "-123.4", "-123.4/-123.4")  # fmt: skip
    head, line = table(HEADER, [row], room=80, optional=OPTIONAL_COLUMNS).splitlines()[:2]
    assert "STATUS" in head
    assert "SEED" in head
    assert len(head) <= 80
    assert " interrupted " in line


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("run", "--algo", "ppo", "--env", "CartPole-v1"), "without options: rlplug run ppo CartPole-v1"),
        (("run", "CartPole-v1", "ppo"), "the algorithm comes before the environment: rlplug run ppo CartPole-v1"),
        (("run", "ppo", "CartPole-v1", "--net.hidden", "[64"), "option '--net.hidden': expected numbers as in"),
        (("resume", "one", "--learning-rate", "1e-4"), "rlplug run ALGORITHM ENV --init RUN --learning-rate …"),
    ],
)
def test_command_of_another_library_gets_a_suggestion(
    words: tuple[str, ...], answer: str, rlplug: Callable[..., Result]
) -> None:
    result = rlplug(*words)
    assert result.code == 2
    assert answer in result.err


def test_human_render_mode_needs_a_display(rlplug: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    result = rlplug("run", "a2c", "CartPole-v1", "--env.render_mode", "human", "--total-timesteps", "10")
    assert result.code == 2
    assert "--env.render_mode human needs a display, and there is none; leave it out" in result.err


def test_quoted_list_in_a_file_gets_a_suggestion(place: Path, rlplug: Callable[..., Result]) -> None:
    Path("c.toml").write_text('[net]\nhidden = "64,64"\n')
    result = rlplug("run", "ppo", "CartPole-v1", "--config", "c.toml", "--print-config")
    assert (result.code, "a list of numbers without quotes, as in [64, 64]" in result.err) == (2, True), result.err


def test_bars_and_their_range_fit_the_terminal() -> None:
    trace = Trace()
    for step in range(100):
        trace.add(step, 0.2956 + step * 0.005)
    for width in (40, 73, 100):
        assert len(trace.draw(width)) <= width
    assert trace.draw(73).endswith(" to 0.7906")


def test_table_of_a_sweep_shows_seeds_at_80_columns() -> None:
    names = [f"ppo-Inventory-learning_rate=0.0003-gamma=0.995-s{seed}" for seed in (1, 2, 11)]
    assert short_names(names) == ["s1", "s2", "s11"]
    progress = SimpleNamespace(
        status="running",
        share=0.5,
        steps=12_000_000,
        speed=123_456.0,
        train_return=-1234.5,
        last=-1234.5,
        best=-1234.5,
        eta_s=36_000.0,
    )
    entries: Any = [SimpleNamespace(task=SimpleNamespace(name=name), progress=progress) for name in names]
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(_fitting_table(entries, console))
    assert "…" not in capture.get()
    assert "s11" in capture.get()


def test_waiting_for_mlflow_prints_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    monkeypatch.setattr(hook, "NOTICE", 0.05)
    monkeypatch.setattr(hook.sys, "executable", str(place / "slow"))
    (place / "slow").write_text("#!/bin/sh\nsleep 0.3\n")
    (place / "slow").chmod(0o755)
    assert hook.Sender().drain()
    assert "sending the rest of the run to MLflow, for at most 30 s; Ctrl-C skips it" in capsys.readouterr().err


def test_display_ends_its_title_with_a_newline() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with display("ppo", stream):
        before = stream.getvalue()
    first = before.replace("\x1b[?25l", "")  # hides the cursor
    assert "ppo" in first
    assert first.endswith("\n")
