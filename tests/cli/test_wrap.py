"""`--wrap` on the command line: precedence, help, completion, errors, and the record in the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import __version__

TINY = ("--total-timesteps", "400", "--eval-every", "200", "--eval-episodes", "2", "--final-eval-episodes", "2")


pytestmark = pytest.mark.usefixtures("no_mlflow")


def wrap_of(name: str) -> tuple[Any, str]:
    config = json.loads((Path("runs") / name / "config.json").read_text(encoding="utf-8"))
    return config["options"]["wrap"], config["origins"]["wrap"]


def test_run_resume_and_evaluate_use_the_wrappers(rlplug: Callable[..., Any]) -> None:
    wraps = ["frame-stack:frames=2", "time-limit:steps=20", "clip-reward:low=-0.5,high=0.5"]
    words = [word for wrap in wraps for word in ("--wrap", wrap)]
    assert rlplug("run", "a2c", "CartPole-v1", *words, *TINY, "--name", "one").code == 0
    assert wrap_of("one") == (wraps, "option")
    assert rlplug("resume", "one", "--total-timesteps", "600").code == 0
    evaluation = json.loads(rlplug("evaluate", "one", "--episodes", "3", "--json").out)
    assert evaluation["return_max"] == evaluation["length_mean"] * 1.0 <= 20


@pytest.mark.parametrize(("eval_wrap", "length"), [("time-limit:steps=7", 7), ("none", 200), (None, 20)])
def test_evaluations_use_eval_wrap(rlplug: Callable[..., Any], eval_wrap: str | None, length: int) -> None:
    """An untrained agent plays MountainCar-v0 up to the time limit: 200 steps, or that of a wrapper."""
    options = () if eval_wrap is None else ("--eval-wrap", eval_wrap)
    words = ("MountainCar-v0", "--wrap", "time-limit:steps=20", *options, *TINY, "--name", "one")
    assert rlplug("run", "a2c", *words).code == 0
    lines = (Path("runs") / "one" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    lengths = [number for each in records if each["kind"] == "episodes" for number in each["data"]["lengths"]]
    assert set(lengths) == {20}
    assert {each["data"]["eval/length_mean"] for each in records if each["kind"] == "evaluation"} == {length}
    assert rlplug("resume", "one", "--total-timesteps", "500").code == 0
    assert json.loads(rlplug("evaluate", "one", "--episodes", "2", "--json").out)["length_mean"] == length


def test_option_overrides_the_file_and_none_removes_all_wrappers(rlplug: Callable[..., Any], place: Path) -> None:
    (place / "c.toml").write_text('wrap = ["time-limit:steps=20", "flatten"]\n')
    assert rlplug("run", "a2c", "CartPole-v1", "--config", "c.toml", *TINY, "--name", "file").code == 0
    assert wrap_of("file") == (["time-limit:steps=20", "flatten"], "config")
    for words, wrap, origin in (
        (("--wrap", "none"), [], "option"),
        (("--set", "wrap=flatten"), ["flatten"], "set"),
        (("--set", "wrap=flatten", "--wrap", "scale-reward"), ["scale-reward"], "option"),
    ):
        name = "-".join(words).replace("=", "-").strip("-")
        assert rlplug("run", "a2c", "CartPole-v1", "--config", "c.toml", *words, *TINY, "--name", name).code == 0
        assert wrap_of(name) == (wrap, origin)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        ("frame-stak", "no wrapper 'frame-stak' is installed; did you mean 'frame-stack'? ('rlplug list'"),
        ("frame-stack:frame=2", "wrapper frame-stack has no option 'frame'; did you mean 'frames'?"),
        ("frame-stack:frames=two", "frame-stack: option 'frames': expected `int`, got `str`"),
        ("frame-stack:2", "options are written NAME:option=value"),
        ("mlflow", "no wrapper 'mlflow' is installed"),
        ("./nothing.py:Wrap", "there is no file nothing.py"),
    ],
)
def test_invalid_wrapper_prints_one_sentence_and_writes_nothing(
    rlplug: Callable[..., Any], wrap: str, message: str
) -> None:
    result = rlplug("run", "a2c", "CartPole-v1", "--wrap", wrap)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert not Path("runs").exists()


def test_disabled_wrapper_is_reported(rlplug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow,flatten")
    for words in (("run", "a2c", "CartPole-v1", "--wrap", "flatten"), ("info", "flatten")):
        result = rlplug(*words)
        assert result.code == 3
        assert f"wrapper 'flatten' of rlplug-envs {__version__} is disabled: 'flatten' is disabled by" in result.err


def test_info_shows_the_options_of_a_wrapper(rlplug: Callable[..., Any]) -> None:
    text = rlplug("info", "frame-stack").out
    assert f"plugin     rlplug-envs {__version__}" in text
    assert "number of observations that an agent sees at once" in text
    assert text.splitlines()[-1] == "rlplug run ALGORITHM ENV --wrap frame-stack:frames=4"
    data = json.loads(rlplug("info", "rlplug-envs/clip-reward", "--json").out)
    assert data["wrapper"] == "clip-reward"
    assert [option["name"] for option in data["options"]] == ["low", "high"]
    assert "did you mean 'frame-stack'" in rlplug("info", "frame-stac").err


def test_info_shows_a_wrapper_in_a_file(rlplug: Callable[..., Any], place: Path) -> None:
    (place / "mine.py").write_text("from rlplug_core import Transform\n\nclass Mine(Transform):\n    pass\n")
    assert rlplug("info", "./mine.py:Mine").out.splitlines()[0] == "wrapper    ./mine.py:Mine"


def test_completion_suggests_wrappers(rlplug: Callable[..., Any], new_process: Callable[..., Any]) -> None:
    line = {"COMP_WORDS": "rlplug run a2c CartPole-v1 --wrap fr", "COMP_CWORD": "5"}
    assert new_process(_RLPLUG_COMPLETE="bash_complete", **line).out.split() == ["plain,frame-stack"]
