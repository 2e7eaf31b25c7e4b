"""One page about one run, the list of runs, and answers to what users of other libraries type."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rlplug_cli.commands.runs import HEADER, SPARED
from rlplug_cli.mlflow import hook
from rlplug_cli.render.live import display
from rlplug_cli.render.tables import table
from rlplug_cli.render.trace import Trace
from rlplug_cli.sweep.display import _fitting_table, short_names
from rlplug_core.runs.api import train
from tests.cli.conftest import Done

CHAIN = "rlplug_core.testing.envs:Chain"
SHORT = {"total_timesteps": 60, "eval_every": 30, "eval_episodes": 2, "final_eval_episodes": 2}


@pytest.fixture
def one(place: Path) -> Path:
    train("a2c", CHAIN, SHORT, out=place / "runs", name="one", hooks=False)
    return place / "runs" / "one"


def test_show_has_options_with_origins_scores_curve_checkpoints_disk_and_the_way_to_resume(
    one: Path, rlplug: Callable[..., Done]
) -> None:
    done = rlplug("show", "one")
    assert done.code == 0, done.err
    facts = dict(line.split(maxsplit=1) for line in done.out.splitlines() if line and not line.startswith(" "))
    assert facts["algorithm"] == "a2c"
    assert facts["status"] == "finished"
    steps = json.loads(rlplug("show", "one", "--json").out)["steps"]
    assert facts["steps"].startswith(f"{steps} of 60 in ")
    assert set(facts["evaluations"].split()[0]) <= set("▁▂▃▄▅▆▇█")
    assert facts["final"].startswith("last weights ")
    assert "resume" in facts["resume"]
    assert facts["resume"].endswith("rlplug resume one --total-timesteps 120")
    assert "MB in runs/one" in facts["disk"]
    kept = sorted(path.name for path in (one / "checkpoints").iterdir())
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("checkpoint ")] == kept
    option = next(line for line in done.out.splitlines() if line.startswith("eval_every "))
    assert option.split() == ["eval_every", "30", "option"]
    content = json.loads(rlplug("show", "one", "--json").out)
    files = [path for path in one.rglob("*") if path.is_file()]
    assert content["bytes"] == sum(path.stat().st_size for path in files)
    assert len(content["evaluations"]) == 2


def test_info_of_a_run_leads_to_show(one: Path, rlplug: Callable[..., Done]) -> None:
    done = rlplug("info", "one")
    assert (done.code, done.err) == (2, "rlplug: one is a run; type: rlplug show one\n")


def test_show_and_info_of_an_export_lead_to_play(one: Path, rlplug: Callable[..., Done]) -> None:
    assert rlplug("export", "one", "--out", "mine").code == 0
    said = "mine is an exported policy, which mine/README.md describes; type: rlplug play mine"
    for command in ("info", "show"):
        done = rlplug(command, "mine")
        assert (done.code, done.err) == (2, f"rlplug: {said}\n")


def test_runs_are_listed_newest_first_and_deleted_by_pattern(
    one: Path, place: Path, rlplug: Callable[..., Done]
) -> None:
    for number, name in enumerate(("x1", "x[1]", "pix-1", "pix-2")):
        (place / "runs" / name).mkdir()
        config = json.loads((one / "config.json").read_text())
        config["created"] += number + 1
        (place / "runs" / name / "config.json").write_text(json.dumps(config))
    assert rlplug("runs", "rm", "x[1]", "--yes").out == "deleted runs/x[1]\n"  # not x1, which the pattern matches
    assert rlplug("runs", "rm", "x[1]", "--yes").out == "deleted runs/x1\n"
    names = [line.split()[0] for line in rlplug("runs").out.splitlines()[1:]]
    assert names == ["pix-2", "pix-1", "one"]
    assert [run["name"] for run in json.loads(rlplug("runs", "--json", "--limit", "1").out)] == ["pix-2"]
    assert rlplug("runs", "rm", "pix*", "--yes").code == 0
    assert [path.name for path in (place / "runs").iterdir()] == ["one"]
    done = rlplug("runs", "rm", "pix*", "--yes")
    assert (done.code, "no run in runs/ matches pix*" in done.err) == (2, True)


def test_status_and_seed_stay_at_80_columns() -> None:
    row = ("ppo-MountainCarContinuous-v0-20261128-101112", "interrupted", "ppo", "MountainCarContinuous-v0", "12",
           "1,000,000/1,000,000", "-123.4", "-123.4", "-123.4/-123.4")  # fmt: skip
    head, line = table(HEADER, [row], room=80, spared=SPARED).splitlines()[:2]
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
def test_a_line_of_another_library_is_answered_with_what_to_type(
    words: tuple[str, ...], answer: str, rlplug: Callable[..., Done]
) -> None:
    done = rlplug(*words)
    assert done.code == 2
    assert answer in done.err


def test_a_window_without_a_display_is_answered_with_a_film(
    rlplug: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    done = rlplug("run", "a2c", "CartPole-v1", "--env.render_mode", "human", "--total-timesteps", "10")
    assert done.code == 2
    assert "--env.render_mode human needs a display, and there is none; leave it out" in done.err


def test_a_list_in_quotes_in_a_file_is_answered_with_a_list(place: Path, rlplug: Callable[..., Done]) -> None:
    Path("c.toml").write_text('[net]\nhidden = "64,64"\n')
    done = rlplug("run", "ppo", "CartPole-v1", "--config", "c.toml", "--print-config")
    assert (done.code, "a list of numbers without quotes, as in [64, 64]" in done.err) == (2, True), done.err


def test_bars_and_their_range_fit_the_terminal() -> None:
    trace = Trace()
    for step in range(100):
        trace.add(step, 0.2956 + step * 0.005)
    for width in (40, 73, 100):
        assert len(trace.draw(width)) <= width
    assert trace.draw(73).endswith(" to 0.7906")


def test_seeds_stay_in_the_table_of_a_sweep_at_80_columns() -> None:
    names = [f"ppo-Inventory-learning_rate=0.0003-gamma=0.995-s{seed}" for seed in (1, 2, 11)]
    assert short_names(names) == ["s1", "s2", "s11"]
    progress = SimpleNamespace(status="running", share=0.5, steps=12_000_000, speed=123_456.0, train_return=-1234.5,
                               last=-1234.5, best=-1234.5, eta_s=36_000.0)  # fmt: skip
    entries: Any = [SimpleNamespace(task=SimpleNamespace(name=name), progress=progress) for name in names]
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(_fitting_table(entries, console))
    assert "…" not in capture.get()
    assert "s11" in capture.get()


def test_a_wait_for_mlflow_is_explained_after_two_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    monkeypatch.setattr(hook, "NOTICE", 0.05)
    monkeypatch.setattr(hook.sys, "executable", str(place / "slow"))
    (place / "slow").write_text("#!/bin/sh\nsleep 0.3\n")
    (place / "slow").chmod(0o755)
    assert hook.Sender().drain()
    assert "sending the rest of the run to MLflow, for at most 30 s; Ctrl-C skips it" in capsys.readouterr().err


def test_a_line_printed_after_the_start_has_a_line_of_its_own() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with display("ppo", stream):
        before = stream.getvalue()
    first = before.replace("\x1b[?25l", "")  # hides the cursor
    assert "ppo" in first
    assert first.endswith("\n")
