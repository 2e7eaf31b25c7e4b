"""Code that came with a run is executed only if this account has written the run, or its user says so."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
def copied(mine: Run, tmp_path: Path) -> Path:
    """A copy of it that may be spoiled."""
    return Path(shutil.copytree(mine.path, tmp_path / "copied"))


def edited(run: Path, **changes: Any) -> None:
    config = json.loads((run / "config.json").read_bytes())
    (run / "config.json").write_text(json.dumps({**config, **changes}))


def ran(run: Path) -> bool:
    return bool(list((run / "sources").glob("*.ran")))


def test_own_files_run_from_any_directory(copied: Path) -> None:
    assert USES["evaluate"](copied, False).episodes == 1


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_files_of_another_account_are_refused_unless_trusted(copied: Path, use: Callable[..., Any]) -> None:
    edited(copied, seal="0" * 64)
    with pytest.raises(Untrusted, match=r"sources/mine-\w+\.py \(algorithm\), which this account did not write here"):
        use(copied, False)
    assert not ran(copied)
    use(copied, True)
    assert ran(copied)


def test_a_copy_that_was_edited_is_refused(copied: Path) -> None:
    next((copied / "sources").glob("*.py")).write_text(RAN + MINE)
    with pytest.raises(Untrusted, match="which has changed since the run started"):
        load(copied)
    assert not ran(copied)


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
        "algorithm": "a2c", "sources": {"algorithm": {"file": "x", "copy": "sources/evil.py", "sha256": "0"}},
    },
}  # fmt: skip


@pytest.mark.parametrize("changes", ROLES.values(), ids=ROLES)
def test_every_part_that_may_name_code_is_looked_at(copied: Path, changes: dict[str, Any]) -> None:
    base = {"algorithm": "a2c", "env": "CartPole-v1", "sources": {}, "modules": {}, "options": {"seed": 1}}
    edited(copied, **{**base, **changes})
    with pytest.raises(Untrusted, match="did not write here"):
        load(copied)


@pytest.mark.parametrize("changes", [{"env": "{}"}, {"options": {"eval_env": "{}"}}], ids=["env", "eval_env"])
@pytest.mark.parametrize("id", ["pettingzoo/runs.stranger.evil", "pettingzoo/evil", "other/evil.deep"])
def test_a_strangers_id_does_not_reach_modules_of_the_working_directory(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], id: str
) -> None:
    """A provider imports the part of an id after the slash; on the import path or not, `evil` is not installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    folder = tmp_path / "runs" / "stranger"
    folder.mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "evil.py").write_text(RAN)
    base = {"algorithm": "a2c", "env": "CartPole-v1", "sources": {}, "modules": {}, "options": {"seed": 1}}
    edited(copied, **{**base, **json.loads(json.dumps(changes).replace("{}", id))})
    with pytest.raises(Untrusted, match=f"would execute {id} "):
        load(copied)
    assert not list(tmp_path.rglob("*.ran"))


def test_an_id_of_an_installed_module_needs_no_trust(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json").mkdir()  # the standard library has this name, so imports find that one
    assert not trust.names_code("pettingzoo/json.tool")
    assert not trust.names_code("pettingzoo/classic.connect_four_v3")


def test_a_strangers_run_of_installed_plugins_alone_needs_no_trust(copied: Path) -> None:
    base = {"algorithm": "a2c", "env": "CartPole-v1", "sources": {}, "modules": {}}
    edited(copied, **base, options={"device": "cuda:1", "seed": 1})
    assert trust.doubts(copied, open_run(copied).config) == []


def test_a_strangers_run_does_not_fetch_weights(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`reproduce` starts from the source of `--init` again, and the record would choose the server."""
    fetched: list[str] = []
    monkeypatch.setattr("rlplug_core.runs.warm_start.find", lambda word: fetched.append(word) or copied)
    for start, asked in (("https://host/agent", True), ("hub:owner/agent", True), ("zoo:ppo/CartPole-v1", False)):
        config = json.loads((copied / "config.json").read_bytes())
        config = {**config, "options": {**config["options"], "init": start}, "seal": "0"}
        edited(copied, **config)
        refused = pytest.raises(Untrusted, match=f"would fetch its first weights from {start}, .* say --trust")
        with refused if asked else pytest.raises(Untrusted, match="would execute"):
            reproduce(copied)
        assert fetched == []
        trust.require_known_start(copied, trust.add_seal(config))  # type: ignore[arg-type]


@pytest.mark.parametrize("copy", ["../evil.py", "/evil.py", "sources/../../evil.py", "evil.py", "sources"])
def test_a_copy_outside_the_run_is_refused_whoever_is_trusted(copied: Path, copy: str) -> None:
    edited(copied, sources={"algorithm": {"file": "x", "copy": copy, "sha256": "0"}})
    with pytest.raises(BadFile, match="is not in the run's sources/"):
        load(copied, trust=True)


def test_links_in_place_of_sources_are_refused(copied: Path, tmp_path: Path) -> None:
    (copied / "sources").rename(tmp_path / "elsewhere")
    (copied / "sources").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadFile, match="is not in the run's sources/"):
        load(copied, trust=True)
    (copied / "sources").unlink()
    (copied / "sources").mkdir()
    name = next((tmp_path / "elsewhere").glob("*.py")).name
    (copied / "sources" / name).symlink_to(tmp_path / "elsewhere" / name)
    with pytest.raises(BadFile, match="not a regular file"):
        load(copied, trust=True)
    assert not ran(tmp_path)


def test_the_key_is_the_accounts_alone(mine: Run) -> None:
    path = Path(os.environ["XDG_STATE_HOME"]) / "rlplug" / "key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "mode"), [("rlplug/key", 0o620), ("rlplug/key", 0o604), ("rlplug", 0o770), ("rlplug", 0o707)]
)
def test_a_key_that_others_may_change_vouches_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str, mode: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = trust.add_seal({"name": "x"})
    assert trust.genuine(before)
    (tmp_path / path).chmod(mode)
    trust._key.cache_clear()
    assert not trust.genuine(before)
    assert trust.add_seal({"name": "x"})["seal"] == ""
    assert "can be changed by other accounts" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("path", ["rlplug/key", "rlplug"])
def test_a_key_of_another_account_vouches_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = trust.add_seal({"name": "x"})
    os.chown(tmp_path / path, 65534, -1)
    trust._key.cache_clear()
    assert not trust.genuine(before)
    assert "belongs to another account" in capsys.readouterr().err


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_the_folder_of_the_key_is_private_under_any_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old = os.umask(umask)
    try:
        assert trust.genuine(trust.add_seal({"name": "x"}))
    finally:
        os.umask(old)
    assert (tmp_path / "rlplug").stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_a_key_nothing_is_vouched_for(
    mine: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert trust.add_seal({"name": "x"}) == {"name": "x", "seal": ""}
    assert not trust.genuine({"name": "x", "seal": ""})
    with pytest.raises(Untrusted):
        mine.evaluate(episodes=1)


def test_an_export_runs_no_wrapper_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(Untrusted, match=r"would execute the wrapper \./evil\.py:Wrap"):
        trust.require_plugins(tmp_path, ["frame-stack:frames=2", "./evil.py:Wrap"])


def test_an_export_may_repeat_the_wrapper_of_its_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that of its environment, and only from an installed module."""
    tiles = "minigrid.wrappers:OneHotPartialObsWrapper"
    assert trust.unusual([tiles, "other:Wrap"], "MiniGrid-Empty-5x5-v0") == ["other:Wrap"]
    assert trust.unusual([tiles], "CartPole-v1") == [tiles]
    (tmp_path / "minigrid").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [""])
    assert trust.unusual([tiles], "MiniGrid-Empty-5x5-v0") == [tiles]


def test_tiny_is_a_target(tmp_path: Path) -> None:
    """A module's algorithm is sealed like a file's."""
    run = train(TINY, CHAIN, OPTIONS, out=tmp_path, name="tiny", hooks=False)
    assert run.evaluate(episodes=1).episodes == 1
    edited(run.path, created=0)
    with pytest.raises(Untrusted, match=r"tests.core.fakes:Tiny|fakes\.py:Tiny|\(algorithm\)"):
        run.evaluate(episodes=1)
