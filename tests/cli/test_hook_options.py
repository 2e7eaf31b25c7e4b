"""Hook plugins and loggers take options from `--hook` and `--log`: `info` shows them, runs record and resume them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlplug_core import plugins
from rlplug_core.errors import BadConfig, PluginError, UsageError
from rlplug_core.plugins.hooks import Hooks, hooks_for
from rlplug_core.runs.api import open_run, resume, train
from rlplug_core.testing.distributions import write_distribution
from tests.cli.conftest import Result

CHAIN = "rlplug_core.testing.envs:Chain"
OPTIONS = {"total_timesteps": 200, "eval_every": 100, "eval_episodes": 1, "final_eval_episodes": 0, "log_every": 100}
CODE = '''
from dataclasses import dataclass
from pathlib import Path
from rlplug_core import Config, hookimpl

@dataclass(frozen=True)
class WireConfig(Config):
    file: str = "wire.txt"  # append a line for each record to this file
    words: tuple[str, ...] = ()  # words at the start of each line
    limit: int | None = 9  # longest line

class Wire:
    """Writes a line for each record."""

    Config = WireConfig

    def __init__(self, config):
        if config.limit is None:
            raise ValueError("no limit")
        self.config = config

    @hookimpl
    def rlplug_run_log(self, step):
        with Path(self.config.file).open("a") as file:
            file.write(f"{step} {list(self.config.words)} {self.config.limit}\\n")
'''


@pytest.fixture(autouse=True)
def wire(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with a class that is a hook plugin and a logger, and a module of hooks without options."""
    points = {
        "rlplug.hooks": {"wire": "rlplug_wire.wire:Wire", "plain": "rlplug_wire.plain"},
        "rlplug.loggers": {"slate": "rlplug_wire.wire:Wire"},
    }
    files = {"rlplug_wire/__init__.py": "", "rlplug_wire/wire.py": CODE, "rlplug_wire/plain.py": ""}
    write_distribution(place / "site", "rlplug-wire", points, files)
    (place / "own.py").write_text(CODE)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place / "site"))
    monkeypatch.setenv("PYTHONPATH", str(place / "site"))
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    yield
    monkeypatch.undo()
    plugins.refresh()
    for name in [name for name in sys.modules if name.startswith("rlplug_wire")]:
        del sys.modules[name]


def lines(name: str) -> list[str]:
    """Return the lines of a file without repetitions: a step with an evaluation has two records."""
    return list(dict.fromkeys(Path(f"{name}.txt").read_text().splitlines()))


def test_hooks_and_loggers_get_options_and_keep_them_after_resume(rlplug: Callable[..., Result], place: Path) -> None:
    """A second `--log` starts a new word; commas inside options do not."""
    words = ["--log", "csv,slate:file=slate.txt,words=a,b", "--log", "./own.py:Wire:file=own.txt"]
    run_options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    result = rlplug(
        "run", "a2c", CHAIN, "--name", "one", "-q", *run_options, *words, "--hook", "rlplug-wire/wire:limit=3"
    )
    assert result.code == 0, result.err
    assert {name: lines(name) for name in ("wire", "slate", "own")} == {
        "wire": ["100 [] 3", "200 [] 3"],
        "slate": ["100 ['a', 'b'] 9", "200 ['a', 'b'] 9"],
        "own": ["100 [] 9", "200 [] 9"],
    }
    options = open_run(Path("runs/one")).config["options"]
    assert options["hook"] == ["rlplug-wire/wire:limit=3"]
    assert options["log"] == ["csv", "slate:file=slate.txt,words=a,b", f"{place}/own.py:Wire:file=own.txt"]
    (place / "own.py").unlink()  # the run has a copy
    resume(Path("runs/one"), total_timesteps=300)
    assert lines("wire")[2:] == ["300 [] 3"]
    assert lines("slate")[2:] == ["300 ['a', 'b'] 9"]
    assert lines("own")[2:] == ["300 [] 9"]


def test_class_without_options_has_defaults(tmp_path: Path) -> None:
    train("a2c", CHAIN, OPTIONS, out=tmp_path)
    assert lines("wire") == ["100 [] 9", "200 [] 9"]


def test_info_shows_the_options(rlplug: Callable[..., Result]) -> None:
    shown = {name: rlplug("info", name, "--json") for name in ("wire", "slate", "./own.py:Wire")}
    for name, result in shown.items():
        options = {option["name"]: option["help"] for option in json.loads(result.out)["options"]}
        assert options["limit"] == "longest line", name
    assert "rlplug run ALGORITHM ENV --hook wire:file=wire.txt" in rlplug("info", "wire").out
    assert "--log slate:file=wire.txt" in rlplug("info", "slate").out
    assert "--hook TEXT" in rlplug("run", "a2c", "--help").out


def test_invalid_options_stop_a_run_before_it_starts(tmp_path: Path) -> None:

    sentences = {
        ("hook", "wire:fiel=x"): (BadConfig, "hook wire has no option 'fiel'; did you mean 'file'"),
        ("hook", "wire:limit=high"): (BadConfig, "wire: option 'limit': expected"),
        ("hook", "wire:limit=none"): (PluginError, "the hook 'wire:limit=none' cannot be made: ValueError: no limit"),
        ("hook", "wrie"): (UsageError, "no hook plugin 'wrie' is installed; did you mean 'wire'"),
        ("hook", "plain:file=x"): (BadConfig, "hook plain has no option 'file'"),
        ("hook", "./own.py:Wire"): (UsageError, "to call the hooks of a class, type --log ./own.py:Wire"),
        ("log", "slate:fiel=x"): (BadConfig, "logger slate has no option 'fiel'; did you mean 'file'"),
        ("log", "csv:file=x"): (BadConfig, "logger csv has no option 'file'"),
        ("log", "./own.py:Wire:fiel=x"): (BadConfig, "did you mean 'file'"),
    }
    wrong = {}
    for (option, words), (kind, sentence) in sentences.items():
        with pytest.raises(kind) as caught:
            train("a2c", CHAIN, {**OPTIONS, option: (words,)}, out=tmp_path / "runs")
        if sentence not in str(caught.value):
            wrong[words] = str(caught.value)
    assert not wrong
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError, match="--hook names rlplug-wire/wire twice"):
        hooks_for(True, ("wire:limit=1", "rlplug-wire/wire"))


def test_plugin_that_fails_without_options_is_reported(place: Path) -> None:
    file = place / "site" / "rlplug_wire" / "wire.py"
    file.write_text(CODE.replace("int | None = 9", "int | None = None"))
    reports: list[str] = []
    hooks = Hooks(report=reports.append)
    assert list(hooks.failed) == ["rlplug-wire/wire"]
    assert "no limit" in reports[0]
    assert not Hooks(report=reports.append, options=("wire:limit=2",)).failed
