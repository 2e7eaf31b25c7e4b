"""`rlplug check`: a line per check or JSON, and an exit code that a script can use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.testing import CONTRACT

ALGORITHM = '''
from dataclasses import dataclass
from rlplug_algos.policy_gradient.a2c import A2C, A2CConfig

@dataclass(frozen=True)
class MineConfig(A2CConfig):
    """Options."""
    beta: float = 1.0

class Mine(A2C):
    """An A2C with an option that nobody explains."""
    Config = MineConfig
    runners = ("sync",)

class Unnamed(A2C):
    runners = ("sync",)
    def learn(self, batch, now, clock):
        result = super().learn(batch, now, clock)
        return type(result)({"loss": result.metrics["loss/policy"]})

class Raising(Mine):
    def learn(self, batch, now, clock):
        raise ValueError("no way")

class Nowhere(Mine):
    actions = ("Text",)
'''


@pytest.fixture
def algorithms(place: Path) -> str:
    (place / "mine.py").write_text(ALGORITHM, encoding="utf-8")
    return "./mine.py"


def test_an_option_without_help_is_the_only_failure_of_an_algorithm_in_a_file(
    rlplug: Callable[..., Any], algorithms: str
) -> None:
    done = rlplug("check", f"{algorithms}:Mine")
    assert (done.code, done.err) == (1, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[0] for line in lines if len(line) == 1] == ["static", "import", "contract"]
    assert ["passed", "truncation"] in lines
    assert "failed   help             no help for beta; write a comment after the field" in done.out
    assert [line[1] for line in lines if line[0] == "failed"] == ["help"]
    assert done.out.splitlines()[-1].endswith(f"; contract {CONTRACT}")


def test_a_traceback_of_what_broke_a_check_off_where_it_is_asked_for(
    rlplug: Callable[..., Any], algorithms: str
) -> None:
    words = ("check", f"{algorithms}:Raising", "--set", "n_steps=3")
    done = rlplug(*words, "--traceback")
    assert done.code == 1
    assert "updates: Traceback (most recent call last):" in done.err
    assert 'raise ValueError("no way")' in done.err
    assert "it raised ValueError: no way (mine.py" in done.out
    assert rlplug(*words).err == ""


def test_json_has_every_check_and_a_failure_ends_with_code_1(rlplug: Callable[..., Any], algorithms: str) -> None:
    done = rlplug("check", f"{algorithms}:Unnamed", "--json", "--set", "n_steps=3")
    report = json.loads(done.out)
    assert (done.code, report["contract"]) == (1, CONTRACT)
    found = {check["name"]: check for check in report["checks"]}
    assert [name for name, check in found.items() if check["status"] == "failed"] == ["metrics"]
    assert found["metrics"]["message"].startswith("a metric is named 'loss'")
    assert not found["help"]["provisional"]
    assert found["copies"]["asks"].startswith("The buffer copies all data")


def test_strict_lets_warnings_fail(
    rlplug: Callable[..., Any], algorithms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlplug_core.testing.kit.examination.CONTRACT", 1)  # as the index of an older plugin says
    done = rlplug("check", f"{algorithms}:Mine", "--strict", "--json")
    assert {check["status"] for check in json.loads(done.out)["checks"]} == {"passed", "skipped", "warned"}
    assert done.code == 1
    assert rlplug("check", f"{algorithms}:Mine").code == 0


def test_an_expected_failure_needs_a_reason_and_is_strict(rlplug: Callable[..., Any], algorithms: str) -> None:
    done = rlplug("check", f"{algorithms}:Unnamed", "--set", "n_steps=3", "--expect", "metrics=an old name", "--json")
    found = {check["name"]: check for check in json.loads(done.out)["checks"]}
    assert (done.code, found["metrics"]["status"]) == (0, "expected")
    assert found["metrics"]["message"].startswith("an old name (a metric is named 'loss'")
    assert rlplug("check", f"{algorithms}:Mine", "--expect", "metrics=an old name").code == 1
    refused = rlplug("check", f"{algorithms}:Mine", "--expect", "metrics")
    assert (refused.code, "write NAME=REASON" in refused.err) == (2, True)


def test_an_algorithm_that_nothing_suits_fails_with_the_way_out(rlplug: Callable[..., Any], algorithms: str) -> None:
    done = rlplug("check", f"{algorithms}:Nowhere")
    assert done.code == 1
    assert "it accepts no environment of the kit; name a supported one with env=... or --env" in done.out
    assert "it depends on 'spaces', which fails" in done.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("a2cc",), 2, "no algorithm 'a2cc' is installed; did you mean 'a2c'?"),
        (("a2c", "--set", "n_stepz=3"), 2, "a2c has no option 'n_stepz'; did you mean 'n_steps'?"),
        (("./gone.py:Mine",), 2, "there is no file gone.py"),
    ],
)
def test_impossible_checks_are_refused(
    rlplug: Callable[..., Any], words: tuple[str, ...], code: int, said: str
) -> None:
    done = rlplug("check", *words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_disabled_plugin_ends_with_code_3(process: Callable[..., Any]) -> None:
    done = process("check", "a2c", RLPLUG_DISABLED_PLUGINS="rlplug-algos")
    assert done.code == 3
    assert "is disabled" in done.err
