"""Pulling from folders, addresses and the zoo, with the cache and hashes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from rlplug_core import load
from rlplug_core.errors import MissingPackage, RlplugError, UsageError
from rlplug_core.runs import Run, resume
from rlplug_core.sharing import places
from rlplug_core.sharing.agent_files import MANIFEST
from rlplug_core.sharing.places import place_of
from rlplug_core.sharing.pull import pull
from rlplug_core.sharing.words import is_source, parse
from tests.core.sharing.agents import FileServer, agent_files, put, serving, with_manifest
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("workdir")


@for_each(
    "word, source",
    [
        ("runs/ppo", False),
        ("./hub", False),
        ("hubble:1", False),
        ("C:\\runs", False),
        ("hub:owner/name", True),
        ("https://host/x", True),
        ("zoo:ppo/ALE/Pong-v5", True),
    ],
)
def test_source_words_are_not_paths(word: str, source: bool) -> None:
    assert is_source(word) == source
    if source:
        assert parse(word).word == word


def test_reads_an_address_once(workdir: Path) -> None:
    files = with_manifest(agent_files())
    with serving(FileServer()) as server:
        server.files = {f"/ppo/{name}": data for name, data in files.items()}
        word = f"{server.address}/ppo"
        first = pull(word)
        assert {path.name: path.read_bytes() for path in first.iterdir()} == files
        requests = len(server.asked)
        assert load(word)([0.0] * 4) in (0, 1)
        assert Run(word).evaluate(2, seed=1).mean == Run(put(workdir / "a", files)).evaluate(2, seed=1).mean
        assert len(server.asked) == requests  # from the cache
        assert pull(word, refresh=True) == first
        assert len(server.asked) == 2 * requests
        server.files = {}
        with pytest.raises(UsageError, match="404"):
            pull(word, refresh=True)
        assert (first / MANIFEST).is_file()  # a failure keeps the cached files


def test_hash_accepts_only_one_agent(workdir: Path) -> None:
    files = with_manifest(agent_files())
    with serving(FileServer()) as server:
        server.files = {f"/ppo/{name}": data for name, data in files.items()}
        word = f"{server.address}/ppo"
        right = sha256(files[MANIFEST]).hexdigest()
        assert pull(f"{word}#sha256={right}").is_dir()
        with pytest.raises(RlplugError, match="ask the person who gave you"):
            pull(f"{word}#sha256={'0' * 64}")
        with pytest.raises(UsageError, match="64 hexadecimal"):
            pull(f"{word}#sha256=1")


def test_writes_manifest_last() -> None:
    """An interrupted push cannot be pulled."""
    with serving(FileServer()) as server:
        place_of(f"{server.address}/new").write(with_manifest(agent_files()))
        assert list(server.files)[-1] == f"/new/{MANIFEST}"
        assert pull(f"{server.address}/new").is_dir()


def test_export_is_not_a_run(workdir: Path) -> None:
    folder = put(workdir / "agent", with_manifest(agent_files()))
    run = Run(folder)
    with pytest.raises(UsageError, match="leave out --checkpoint"):
        run.evaluate(1, checkpoint="step-1")
    with pytest.raises(UsageError, match="greedy"):
        run.evaluate(1, stochastic=True)
    with pytest.raises(UsageError, match="does not fit Acrobot-v1: its observations"):
        run.evaluate(1, env="Acrobot-v1")
    with pytest.raises(UsageError, match="cannot be resumed"):
        resume(folder)
    with pytest.raises(UsageError, match="export already"):
        run.export(workdir / "again")


def test_zoo_is_a_package(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as absent:
        absent.setattr(places, "find_spec", lambda _: None)
        with pytest.raises(MissingPackage, match="pip install rlplug-zoo"):
            pull("zoo:ppo/CartPole-v1")
    package = workdir / "site" / "rlplug_zoo"
    put(package, {"__init__.py": b"raise SystemExit\n"})  # it is never imported
    put(package / "agents" / "ppo" / "CartPole-v1", with_manifest(agent_files()))
    monkeypatch.syspath_prepend(str(workdir / "site"))
    assert load("zoo:ppo/CartPole-v1")([0.0] * 4) in (0, 1)
    with pytest.raises(UsageError, match="did you mean 'ppo/CartPole-v1'"):
        pull("zoo:ppo/CartPole-v0")
