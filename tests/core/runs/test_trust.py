"""Code that comes with a run is executed only if this account wrote the run, or with `trust`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rlplug_core.errors import BadFile, Untrusted
from rlplug_core.runs import trust
from rlplug_core.runs.api import Run, load, open_run, resume, train
from rlplug_core.runs.reproduction import reproduce
from tests.core.fakes import ENVS, TINY

CHAIN = f"{ENVS}:Chain"
OPTIONS: dict[str, Any] = {"total_timesteps": 40, "eval_episodes": 1, "final_eval_episodes": 0, "runner": "sync"}
RAN = "open(__file__ + '.ran', 'w').close()\n"
MINE = f"{RAN}from tests.core.fakes import Tiny\nclass Mine(Tiny): ...\n"

USES: dict[str, Callable[..., Any]] = {
    "evaluate": lambda path, trust: open_run(path, trust=trust).evaluate(episodes=1),
    "load": lambda path, trust: load(path, trust=trust),
    "resume": lambda path, trust: resume(path, total_timesteps=80, hooks=False, trust=trust),
    "reproduce": lambda path, trust: reproduce(path, trust=trust),
}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of an algorithm in a file, written by this account."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(MINE)
    return train(f"{folder / 'mine.py'}:Mine", CHAIN, OPTIONS, out=folder / "runs", name="mine", hooks=False)


@pytest.fixture
def run_copy(mine: Run, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(mine.path, tmp_path / "copy"))


def edit_config(run: Path, **changes: Any) -> None:
    config = json.loads((run / "config.json").read_bytes())
    (run / "config.json").write_text(json.dumps({**config, **changes}))


def code_ran(run: Path) -> bool:
    return bool(list((run / "sources").glob("*.ran")))


def test_own_files_run_from_any_directory(run_copy: Path) -> None:
    assert USES["evaluate"](run_copy, False).episodes == 1


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_files_of_another_account_need_trust(run_copy: Path, use: Callable[..., Any]) -> None:
    edit_config(run_copy, seal="0" * 64)
    with pytest.raises(Untrusted, match=r"sources/mine-\w+\.py \(algorithm\), which this account did not write here"):
        use(run_copy, False)
    assert not code_ran(run_copy)
    use(run_copy, True)
    assert code_ran(run_copy)


def test_edited_copy_is_not_executed(run_copy: Path) -> None:
    next((run_copy / "sources").glob("*.py")).write_text(RAN + MINE)
    with pytest.raises(Untrusted, match="which has changed since the run started"):
        load(run_copy)
    assert not code_ran(run_copy)


ROLES: dict[str, dict[str, Any]] = {
    "algorithm": {"algorithm": "evil.py:Mine"},
    "a module": {"algorithm": "tests.core.fakes:Tiny"},
    "environment": {"env": "evil.py:Mine"},
    "wrapper": {"options": {"wrap": ["./evil.py:Mine:size=3"]}},
    "logger": {"options": {"log": ["csv", "./evil.py:Log"]}},
    "evaluation environment": {"options": {"eval_env": "./evil.py:Mine"}},
    "a Ray cluster": {"options": {"on": "ray://10.0.0.1:10001"}},
    "a folder of modules": {"modules": {"env": "evil"}},
    "network": {"options": {"net.factory": "evil.py:make"}},
    "a copy for an installed one": {
        "algorithm": "a2c",
        "sources": {"algorithm": {"file": "x", "copy": "sources/evil.py", "sha256": "0"}},
    },
}


@pytest.mark.parametrize("changes", ROLES.values(), ids=ROLES)
def test_checks_each_part_that_may_name_code(run_copy: Path, changes: dict[str, Any]) -> None:
    base = {"algorithm": "a2c", "env": "CartPole-v1", "sources": {}, "modules": {}, "options": {"seed": 1}}
    edit_config(run_copy, **{**base, **changes})
    with pytest.raises(Untrusted, match="did not write here"):
        load(run_copy)


@pytest.mark.parametrize("changes", [{"env": "{}"}, {"options": {"eval_env": "{}"}}], ids=["env", "eval_env"])
@pytest.mark.parametrize("id", ["pettingzoo/runs.stranger.evil", "pettingzoo/evil", "other/evil.deep"])
def test_foreign_id_does_not_import_from_working_directory(
    run_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], id: str
) -> None:
    """A provider imports the part of an id after the slash; on the import path or not, `evil` is not installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    folder = tmp_path / "runs" / "stranger"
    folder.mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "evil.py").write_text(RAN)
    base = {"algorithm": "a2c", "env": "CartPole-v1", "sources": {}, "modules": {}, "options": {"seed": 1}}
    edit_config(run_copy, **{**base, **json.loads(json.dumps(changes).replace("{}", id))})
    with pytest.raises(Untrusted, match=f"would execute {id} "):
        load(run_copy)
    assert not list(tmp_path.rglob("*.ran"))


def test_id_of_installed_module_needs_no_trust(run_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json").mkdir()  # imports find the module of the standard library first
    assert not trust.names_code("pettingzoo/json.tool")
    assert not trust.names_code("pettingzoo/classic.connect_four_v3")


def test_foreign_run_of_installed_plugins_needs_no_trust(run_copy: Path) -> None:
    base = {"algorithm": "a2c", "env": "CartPole-v1", "sources": {}, "modules": {}}
    edit_config(run_copy, **base, options={"device": "cuda:1", "seed": 1})
    assert trust.code_without_seal(run_copy, open_run(run_copy).config) == []


def test_foreign_run_does_not_fetch_weights(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`reproduce` starts from the source of `--init` again, so the record would choose the server."""
    find = Mock(return_value=run_copy)
    monkeypatch.setattr("rlplug_core.runs.warm_start.find", find)
    for start, needs_trust in (("https://host/agent", True), ("hub:owner/agent", True), ("zoo:ppo/CartPole-v1", False)):
        config = json.loads((run_copy / "config.json").read_bytes())
        config = {**config, "options": {**config["options"], "init": start}, "seal": "0"}
        edit_config(run_copy, **config)
        refusal = pytest.raises(Untrusted, match=f"would fetch its first weights from {start}, .* add --trust")
        with refusal if needs_trust else pytest.raises(Untrusted, match="would execute"):
            reproduce(run_copy)
        find.assert_not_called()
        trust.require_known_start(run_copy, trust.add_seal(config))  # type: ignore[arg-type]


@pytest.mark.parametrize("copy", ["../evil.py", "/evil.py", "sources/../../evil.py", "evil.py", "sources"])
def test_copy_outside_the_run_is_refused_even_with_trust(run_copy: Path, copy: str) -> None:
    edit_config(run_copy, sources={"algorithm": {"file": "x", "copy": copy, "sha256": "0"}})
    with pytest.raises(BadFile, match="is not in the run's sources/"):
        load(run_copy, trust=True)


def test_links_in_place_of_sources_are_refused(run_copy: Path, tmp_path: Path) -> None:
    (run_copy / "sources").rename(tmp_path / "elsewhere")
    (run_copy / "sources").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadFile, match="is not in the run's sources/"):
        load(run_copy, trust=True)
    (run_copy / "sources").unlink()
    (run_copy / "sources").mkdir()
    name = next((tmp_path / "elsewhere").glob("*.py")).name
    (run_copy / "sources" / name).symlink_to(tmp_path / "elsewhere" / name)
    with pytest.raises(BadFile, match="not a regular file"):
        load(run_copy, trust=True)
    assert not code_ran(tmp_path)


def test_only_the_account_can_read_the_key(mine: Run) -> None:
    path = Path(os.environ["XDG_STATE_HOME"]) / "rlplug" / "key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "mode"), [("rlplug/key", 0o620), ("rlplug/key", 0o604), ("rlplug", 0o770), ("rlplug", 0o707)]
)
def test_ignores_key_that_others_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str, mode: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = trust.add_seal({"name": "x"})
    assert trust.genuine(before)
    (tmp_path / path).chmod(mode)
    trust._key.cache_clear()
    assert not trust.genuine(before)
    assert trust.add_seal({"name": "x"})["seal"] == ""
    assert "can be read or changed by other accounts" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("path", ["rlplug/key", "rlplug"])
def test_ignores_key_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = trust.add_seal({"name": "x"})
    os.chown(tmp_path / path, 65534, -1)
    trust._key.cache_clear()
    assert not trust.genuine(before)
    assert "belongs to another account" in capsys.readouterr().err


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_key_folder_is_private_under_any_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old = os.umask(umask)
    try:
        assert trust.genuine(trust.add_seal({"name": "x"}))
    finally:
        os.umask(old)
    assert (tmp_path / "rlplug").stat().st_mode & 0o777 == 0o700


def test_trusts_nothing_without_a_key(mine: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert trust.add_seal({"name": "x"}) == {"name": "x", "seal": ""}
    assert not trust.genuine({"name": "x", "seal": ""})
    with pytest.raises(Untrusted):
        mine.evaluate(episodes=1)


def test_export_refuses_wrapper_from_file(tmp_path: Path) -> None:
    with pytest.raises(Untrusted, match=r"would execute the wrapper \./evil\.py:Wrap, .* add --trust "):
        trust.require_plugins(tmp_path, ["frame-stack:frames=2", "./evil.py:Wrap"])


def test_export_may_repeat_wrapper_of_its_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that of its environment, and only from an installed module."""
    tiles = "minigrid.wrappers:OneHotPartialObsWrapper"
    assert trust.unknown_wrappers([tiles, "other:Wrap"], "MiniGrid-Empty-5x5-v0") == ["other:Wrap"]
    assert trust.unknown_wrappers([tiles], "CartPole-v1") == [tiles]
    (tmp_path / "minigrid").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [""])
    assert trust.unknown_wrappers([tiles], "MiniGrid-Empty-5x5-v0") == [tiles]


def test_algorithm_of_a_module_is_sealed(tmp_path: Path) -> None:
    run = train(TINY, CHAIN, OPTIONS, out=tmp_path, name="tiny", hooks=False)
    assert run.evaluate(episodes=1).episodes == 1
    edit_config(run.path, created=0)
    with pytest.raises(Untrusted, match=r"tests.core.fakes:Tiny|fakes\.py:Tiny|\(algorithm\)"):
        run.evaluate(episodes=1)
