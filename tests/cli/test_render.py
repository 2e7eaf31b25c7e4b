"""Progress is shown as lines in a pipe and as a live display on a terminal."""

from __future__ import annotations

import io
import math
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlplug_cli.render.live import Lines, Screen, duration, line
from rlplug_cli.render.trace import WIDTH, Trace
from rlplug_cli.training import title
from rlplug_core.loop.events import Progress
from rlplug_core.plugins.request import RunRequest
from tests.cli.warm import Fork
from tests.waiting import PATIENCE


def progress(steps: int, evaluation: float | None = None, phase: str = "training") -> Progress:
    return Progress(steps, 100_000, 12_345.6, 321, 98.76, evaluation, 500.0, phase)


def test_line_shows_all_numbers() -> None:
    text = line(progress(50_000, 480.5))
    assert text == " 50,000/100,000 steps  12,346 steps/s  return 98.8  evaluation 480.5 (best 500.0)  0:04 to go"


def test_unknown_values_are_left_out() -> None:
    assert line(Progress(0, 10, 0.0, 0, None, None, None, "training")) == " 0/10 steps"


def test_last_vector_step_may_exceed_the_total() -> None:
    assert line(Progress(504, 500, 2.0, 0, None, None, None, "training")) == "504/500 steps  2 steps/s  0:00 to go"


def test_header_names_wrappers_and_typed_options() -> None:
    values = {"seed": 3, "learning_rate": 0.1, "wrap": ["normalize-obs", "flatten"], "n_steps": 8}
    origins = {"seed": "option", "learning_rate": "set", "wrap": "option", "n_steps": "preset"}
    text = title(RunRequest.make("./my.py:Mine", "/a/b/world.py:World", values, origins))
    assert text == "my.py:Mine · world.py:World · seed 3 · wrap=normalize-obs,flatten learning_rate=0.1"
    assert title(RunRequest.make("ppo", "ALE/Pong-v5", {})) == "ppo · ALE/Pong-v5 · seed 1"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3661, "1:01:01"), (math.inf, "-")])
def test_duration_text(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_lines_are_few_and_show_every_evaluation() -> None:
    stream = io.StringIO()
    lines = Lines("the title", stream)
    for steps in range(0, 100_000, 500):
        lines(progress(steps, evaluation=float(steps // 25_000) if steps >= 25_000 else None))
        lines(progress(steps, phase="evaluating"))
    lines(progress(100_000, 4.0, "final_eval"))
    first, *rest = stream.getvalue().splitlines()
    assert first == "the title"
    assert 20 <= len(rest) <= 24
    for number in (1, 2, 3, 4):
        assert any(f"evaluation {number}.0" in text for text in rest)


def test_line_is_not_repeated() -> None:
    """The episodes of the final evaluation change no number."""
    stream = io.StringIO()
    lines = Lines("the title", stream)
    for phase in ("training", "final_eval", "final_eval"):
        lines(progress(50_000, 4.0, phase))
    assert len(stream.getvalue().splitlines()) == 2


def test_message_of_the_run_is_a_separate_line() -> None:
    stream = io.StringIO()
    lines = Lines("the title", stream)
    lines(progress(50_000))
    lines(replace(progress(50_000), message="step 50,000: learning rates are multiplied by 0.5"))
    assert stream.getvalue().splitlines()[2:] == ["step 50,000: learning rates are multiplied by 0.5"]


def test_live_display_shows_all_numbers() -> None:
    console = Console(file=io.StringIO(), width=110, force_terminal=False)
    console.print(Screen().draw(progress(50_000, 480.5)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("training", "50,000 / 100,000 steps", "12,346 steps/s", "98.8", "480.5", "500.0"):
        assert part in text
    console.print(Screen().draw(progress(50_000, phase="final_eval")))
    assert "final evaluation" in console.file.getvalue()  # type: ignore[attr-defined]


def test_bars_show_return_and_loss() -> None:
    console = Console(file=io.StringIO(), width=110, force_terminal=False)
    screen = Screen()
    for steps in range(0, 80, 10):
        drawn = screen.draw(Progress(steps, 100, 1.0, 1, float(steps), None, None, "training", {"loss/value": -steps}))
    console.print(drawn)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "return ▁▂▃▄▅▆▇█  0 to 70" in text
    assert "loss   █▇▆▅▄▃▂▁  -70 to 0" in text


def test_bars_cover_a_long_run() -> None:
    trace = Trace()
    for steps in range(10_000):
        trace.add(steps, float(steps))
    assert len(trace.values) < 2 * WIDTH
    assert trace.values[0] < 1_000
    assert trace.values[-1] > 9_000
    trace.add(20_000, math.nan)
    assert trace.values[-1] < 10_000


def output_on_terminal(fork: Callable[..., Fork], *more: str, **variables: str) -> str:
    """Return the output of a short run on a terminal."""
    leader, follower = pty.openpty()
    words = ("run", "a2c", "CartPole-v1", *more, "--name", "one")
    environment = {**os.environ, "RLPLUG_DISABLED_PLUGINS": "mlflow", "TERM": "xterm", **variables}
    process = fork(*words, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    output = read_all(leader)
    assert process.wait(PATIENCE) == 0, output
    return output


def test_notebook_shows_plain_lines(place: Path, short: tuple[str, ...], fork: Callable[..., Fork]) -> None:
    """`!rlplug run` in a notebook writes to a terminal that keeps all output."""
    output = output_on_terminal(fork, *short, JPY_PARENT_PID="1")
    assert "\x1b[" not in output
    assert "600/600 steps" in output


def test_terminal_shows_a_live_display(place: Path, short: tuple[str, ...], fork: Callable[..., Fork]) -> None:
    output = output_on_terminal(fork, *short)
    assert "\x1b[" in output
    assert "600 / 600 steps" in output
    assert "final evaluation  last weights  mean return" in output
    assert "run      runs/one" in output
    assert output.count("a2c · CartPole-v1") == 1
    assert output.index("a2c · CartPole-v1") < output.index("network      policy") < output.index("training   ")


def read_all(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # Linux raises it when the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def test_closed_pipe_is_not_an_error(process: Callable[..., Any]) -> None:
    words = f"{sys.executable} -m rlplug_cli plugins --json | head -c 1"
    result = subprocess.run(words, shell=True, capture_output=True, text=True, check=False)
    assert result.stderr == ""
