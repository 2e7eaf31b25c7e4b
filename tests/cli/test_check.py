"""`rlplug check` prints a line per check or JSON, and exits with a code that a script can use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import rlplug_core
from rlplug_core import plugins
from rlplug_core.testing import CONTRACT
from rlplug_core.testing.distributions import write_distribution

ALGORITHM = '''
from dataclasses import dataclass
from rlplug_algos.policy_gradient.a2c import A2C, A2CConfig

@dataclass(frozen=True)
class MineConfig(A2CConfig):
    """Options."""
    beta: float = 1.0

class Mine(A2C):
    """An A2C with an option without help."""
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


def test_option_without_help_fails_only_the_help_check(rlplug: Callable[..., Any], algorithms: str) -> None:
    result = rlplug("check", f"{algorithms}:Mine")
    assert (result.code, result.err) == (1, "")
    lines = [line.split() for line in result.out.splitlines()]
    assert [line[0] for line in lines if len(line) == 1] == ["static", "import", "contract"]
    assert ["passed", "truncation"] in lines
    assert "failed   help             no help for beta; write a comment after the field" in result.out
    assert [line[1] for line in lines if line[0] == "failed"] == ["help"]
    assert result.out.splitlines()[-1].endswith(f"; contract {CONTRACT}")


def test_traceback_option_shows_the_error_of_a_check(rlplug: Callable[..., Any], algorithms: str) -> None:
    words = ("check", f"{algorithms}:Raising", "--set", "n_steps=3")
    result = rlplug(*words, "--traceback")
    assert result.code == 1
    assert "updates: Traceback (most recent call last):" in result.err
    assert 'raise ValueError("no way")' in result.err
    assert "it raised ValueError: no way (mine.py" in result.out
    assert rlplug(*words).err == ""


def test_json_lists_all_checks_and_a_failure_exits_with_1(rlplug: Callable[..., Any], algorithms: str) -> None:
    result = rlplug("check", f"{algorithms}:Unnamed", "--json", "--set", "n_steps=3")
    report = json.loads(result.out)
    assert (result.code, report["contract"]) == (1, CONTRACT)
    by_name = {check["name"]: check for check in report["checks"]}
    assert [name for name, check in by_name.items() if check["status"] == "failed"] == ["metrics"]
    assert by_name["metrics"]["message"].startswith("a metric is named 'loss'")
    assert not by_name["help"]["provisional"]
    assert by_name["copies"]["asks"].startswith("The buffer copies all data")


def test_warnings_fail_unless_allowed(
    rlplug: Callable[..., Any], algorithms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlplug_core.testing.kit.examination.CONTRACT", 1)  # the contract of an older plugin
    result = rlplug("check", f"{algorithms}:Mine", "--json")
    assert {check["status"] for check in json.loads(result.out)["checks"]} == {"passed", "skipped", "warned"}
    assert result.code == 1
    assert rlplug("check", f"{algorithms}:Mine", "--no-strict").code == 0


def test_expected_failure_needs_a_reason_and_must_fail(rlplug: Callable[..., Any], algorithms: str) -> None:
    result = rlplug("check", f"{algorithms}:Unnamed", "--set", "n_steps=3", "--expect", "metrics=an old name", "--json")
    by_name = {check["name"]: check for check in json.loads(result.out)["checks"]}
    assert (result.code, by_name["metrics"]["status"]) == (0, "expected")
    assert by_name["metrics"]["message"].startswith("an old name (a metric is named 'loss'")
    assert rlplug("check", f"{algorithms}:Mine", "--expect", "metrics=an old name").code == 1
    refused = rlplug("check", f"{algorithms}:Mine", "--expect", "metrics")
    assert (refused.code, "write NAME=REASON" in refused.err) == (2, True)


def test_algorithm_without_a_suitable_environment_fails(rlplug: Callable[..., Any], algorithms: str) -> None:
    result = rlplug("check", f"{algorithms}:Nowhere")
    assert result.code == 1
    assert "it accepts no environment of the kit; name a supported one with env=... or --env" in result.out
    assert "it depends on 'spaces', which fails" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a2cc",), "no algorithm 'a2cc' is installed; did you mean 'a2c'?"),
        (("a2c", "--set", "n_stepz=3"), "a2c has no option 'n_stepz'; did you mean 'n_steps'?"),
        (("./gone.py:Mine",), "there is no file gone.py"),
    ],
)
def test_invalid_arguments_exit_with_2(rlplug: Callable[..., Any], words: tuple[str, ...], message: str) -> None:
    result = rlplug("check", *words)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_disabled_plugin_exits_with_3(process: Callable[..., Any]) -> None:
    result = process("check", "a2c", RLPLUG_DISABLED_PLUGINS="rlplug-algos")
    assert result.code == 3
    assert "is disabled" in result.err


CONTROLLER = '''"""Controllers of a plugin."""
from rlplug_core.loop.controllers import Plateau

class Halving(Plateau):
    """Halve the learning rates."""
'''


@pytest.fixture
def halving(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of an installed distribution `rlplug-halving` with a controller."""
    site = tmp_path_factory.mktemp("site")
    files = {"rlplug_halving/__init__.py": "", "rlplug_halving/rates.py": CONTROLLER}
    write_distribution(
        site, "rlplug-halving", {"rlplug.controllers": {"halving": "rlplug_halving.rates:Halving"}}, files
    )
    monkeypatch.syspath_prepend(str(site))
    plugins.refresh()
    yield site / "rlplug_halving"
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("rlplug_halving")]:
        del sys.modules[name]
    plugins.refresh()


def test_search_and_registry_show_a_recorded_result_until_the_source_changes(
    rlplug: Callable[..., Any], halving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("check", "controller", "halving:patience=3", "--record")
    missing = rlplug(*words)
    assert (missing.code, "it has no index; write it with: rlplug index rlplug-halving" in missing.err) == (3, True)

    def read_checks() -> list[dict[str, Any]]:
        (plugin,) = json.loads(rlplug("search", "halving", "--json").out)
        checks: list[dict[str, Any]] = plugin["checks"]
        return checks

    rlplug("index", "rlplug-halving")
    with monkeypatch.context() as older:
        older.setattr(rlplug_core, "__version__", "0.0.9")
        result = rlplug(*words)
    assert (result.code, result.out.splitlines()[-1]) == (0, f"wrote the result into {halving / 'checks.json'}")
    before = datetime.now(UTC).date().isoformat()
    assert json.loads(rlplug(*words, "--expect", "controller-state=a reason", "--json").out)
    after = datetime.now(UTC).date().isoformat()
    old, new = read_checks()
    assert (old["core"], old["command"]) == ("0.0.9", "rlplug check controller halving:patience=3")
    assert (set(old["counts"]), old["failed"], old["contract"]) == ({"passed", "skipped"}, [], CONTRACT)
    assert new["command"] == "rlplug check controller halving:patience=3 --expect 'controller-state=a reason'"
    assert (new["core"], new["version"]) == (rlplug_core.__version__, "1.0")
    assert before <= new["date"] <= after
    assert new["failed"] == ["controller-state"]  # it passes although a failure was expected
    assert f"failed {new['date']}: controller-state" in rlplug("search", "halving").out
    rlplug("index", "rlplug-halving", "--check", "--registry", "all.json")
    (entry,) = json.loads(Path("all.json").read_text(encoding="utf-8"))["plugins"]
    assert [check["core"] for check in entry["checks"]] == ["0.0.9", rlplug_core.__version__]

    (halving / "rates.py").write_text(f"{CONTROLLER}# changed\n", encoding="utf-8")
    plugins.refresh()
    rlplug("index", "rlplug-halving")
    assert read_checks() == []
    rlplug(*words)
    assert [check["failed"] for check in read_checks()] == [[]]
    assert len(json.loads((halving / "checks.json").read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hooks", "rlplug-cli"), "--record: registries do not list hooks"),
        (("./mine.py:Mine",), "--record: './mine.py:Mine' is not an installed plugin"),
        (("env", "rlplug_core.testing.envs:Chain"), "is not an installed plugin"),
        (("a2cc",), "no algorithm 'a2cc' is installed; did you mean 'a2c'?"),
    ],
)
def test_record_needs_an_installed_plugin(rlplug: Callable[..., Any], words: tuple[str, ...], message: str) -> None:
    result = rlplug("check", *words, "--record")
    assert (result.code, result.out) == (2, "")
    assert message in result.err
