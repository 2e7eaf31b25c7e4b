"""With bad plugins installed every other command works, and each keeps its name and says why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import plugins
from rlplug_core.testing.distributions import write_distribution

BAD = {
    "syntax": ("def broken(:", "SyntaxError"),
    "exits": ("raise SystemExit(5)", "SystemExit: 5"),
    "needs": ("import package_that_is_not_here", "needs the package 'package_that_is_not_here'"),
    "empty": ("x = 1", "has no 'Algo'"),
    "drift": ("class Algo: runners = ()", "it has no 'Config'"),
}


@pytest.fixture
def museum(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five plugins that cannot be loaded, one that is incompatible, one that clashes, and hooks that raise."""
    site = tmp_path_factory.mktemp("site")
    for name, (text, _) in BAD.items():
        points = {"rlplug.algorithms": {name: f"rlplug_{name}:Algo"}}
        write_distribution(site, f"rlplug-{name}", points, {f"rlplug_{name}/__init__.py": text})
    future = {"rlplug.algorithms": {"future": "rlplug_future:Algo"}}
    write_distribution(site, "rlplug-future", future, {"rlplug_future/__init__.py": ""}, requires=["rlplug-core>=99"])
    clash = {"rlplug.algorithms": {"ppo": "rlplug_clash:Algo"}, "rlplug.hooks": {"bad": "rlplug_clash.hooks"}}
    hooks = "from rlplug_core.hooks import hookimpl\n@hookimpl\ndef rlplug_run_log(): raise ValueError('not today')\n"
    files = {"rlplug_clash/__init__.py": "", "rlplug_clash/hooks.py": hooks}
    write_distribution(site, "rlplug-clash", clash, files)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
    plugins.refresh()
    yield
    monkeypatch.undo()
    plugins.refresh()


@pytest.mark.parametrize("words", ["--help", "list", "plugins", "run --help", "runs", "info a2c", "run a2c --help"])
def test_every_other_command_works(museum: None, rlplug: Callable[..., Any], words: str) -> None:
    assert rlplug(*words.split()).code == 0


@pytest.mark.parametrize("name", BAD)
def test_a_plugin_that_cannot_be_loaded_keeps_its_name(museum: None, rlplug: Callable[..., Any], name: str) -> None:
    assert name in rlplug("list").out
    for words in (("run", name, "CartPole-v1"), ("run", name, "--help"), ("info", name)):
        done = rlplug(*words)
        assert done.code == 3
        assert f"algorithm '{name}' of rlplug-{name} 1.0" in done.err
        assert BAD[name][1] in done.err
        assert "Traceback" not in done.err


def test_plugins_and_doctor_name_each_with_its_reason(museum: None, process: Callable[..., Any]) -> None:
    done = process("plugins")
    assert "'future' of rlplug-future 1.0 is incompatible: it needs rlplug-core>=99" in done.out
    assert "'ppo' of rlplug-clash 1.0: the id 'ppo' belongs to rlplug-algos; use 'rlplug-clash/ppo'" in done.out
    assert process("doctor").code == 3
    rows = {row["id"]: row for row in json.loads(process("plugins", "--json").out)}
    assert rows["future"]["status"] == "incompatible"
    assert rows["mlflow"]["status"] == "ok"


def test_metadata_that_cannot_be_parsed_hides_nobody(
    rlplug: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = write_distribution(tmp_path, "rlplug-torn", {}, {})
    (torn / "entry_points.txt").write_text("[rlplug.algorithms]\nno equals sign\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = rlplug("plugins")
    assert "of rlplug-torn 1.0 is broken: its metadata cannot be parsed" in done.out
    assert "a2c" in rlplug("list").out


def test_a_run_goes_on_when_a_hook_raises(
    museum: None, process: Callable[..., Any], place: Path, short: tuple[str, ...]
) -> None:
    done = process("run", "a2c", "CartPole-v1", *short, "--name", "mine", RLPLUG_DISABLED_PLUGINS="mlflow")
    assert done.code == 0, done.err
    (line,) = done.err.splitlines()
    assert "'rlplug-clash/bad' failed in rlplug_run_log and is off for this run: ValueError: not today" in line
    records = map(json.loads, (place / "runs/mine/journal.jsonl").read_text().splitlines())
    tags = [record["data"] for record in records if record["kind"] == "tag"]
    assert tags == [{"rlplug.hook_failed": "rlplug-clash/bad"}]


def test_without_algorithms_and_environments_the_command_line_works(process: Callable[..., Any]) -> None:
    off = {"RLPLUG_DISABLED_PLUGINS": "rlplug-algos,rlplug-envs"}
    for words in ("--help", "list", "plugins", "runs", "run --help", "doctor"):
        assert process(*words.split(), **off).code == 0
    done = process("run", "a2c", "CartPole-v1", **off)
    assert done.code == 3
    assert "'a2c' of rlplug-algos 0.1.0 is disabled: 'rlplug-algos' is disabled by RLPLUG_DISABLED_PLUGINS" in done.err
