"""Corrupted shared files: agents in folders, registries of plugins, and populations.

They are cases of `hostile.World` with its checks.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.hostile import BYTES, KINDS, Case, World, call_main, put, replace_by_kind, trees, write_file
from tests.faults.strangers import WORDS, kind_in

SHORT = ("--total-timesteps", "80", "--n-steps", "5", "--eval-episodes", "1", "--final-eval-episodes", "1", "-P",
         "no:mlflow")  # fmt: skip
EVOLVE = ("evolve", "a2c", "CartPole-v1", "--members", "2", "--every", "40", "--gamma", "0.5..0.99", "--jobs", "1",
          *SHORT, "--name", "pop", "--out")  # fmt: skip
PULL = ("pull", "{run}/agent", "--out", "{out}/pulled")
SEARCH = ("search", "a")
PUSH = ("push", "{run}/agent", "{out}/pushed")
ENTRY = {
    "group": "algorithms", "id": "qmix", "distribution": "rlplug-marl", "version": "0.3.0",
    "summary": "Mixes a number of values.", "paper": "arXiv:1803.11485", "contract": 2,
}  # fmt: skip


def cases(world: World, draw: random.Random, set_env: Callable[[str, str], None]) -> Iterator[Case]:
    """All cases of this module.

    Args:
        set_env: sets a variable of this process's environment.
    """
    agent, population = world.folder / "agent", world.folder / "populations"
    for words in (["push", str(world.run), str(agent)], [*EVOLVE, str(population)]):
        code, _, messages = call_main(words)
        assert code == 0, messages
    set_env("RLPLUG_REGISTRY", str(world.folder / "out" / "one" / "registry.json"))
    yield from registries(world, draw)
    yield from agents(world, agent, draw)
    yield from populations(world, population / "pop", draw)


def registries(world: World, draw: random.Random) -> Iterator[Case]:
    """A registry of another account."""
    content = json.dumps({"format": 1, "plugins": [ENTRY, {**ENTRY, "group": "envs", "id": "far"}]}).encode()
    for name, spoil in BYTES.items():
        yield Case(f"registry: {name}", write_file("registry.json", spoil(content, draw)), (SEARCH,))
    for path, value in trees(json.loads(content), draw, 80):
        changed = json.dumps(put(json.loads(content), path, value)).encode()
        yield Case(f"registry: {path} = {value!r:.30}", write_file("registry.json", changed), (SEARCH,))
    for name, make in KINDS.items():
        yield Case(f"registry: {name}", replace_by_kind(make, Path("registry.json"), world.trap), (SEARCH,))


def agents(world: World, agent: Path, draw: random.Random) -> Iterator[Case]:
    """The folder of a shared agent with one corrupted file and matching hashes."""
    for file in sorted(path.name for path in agent.iterdir()):
        content = (agent / file).read_bytes()
        for name, spoil in BYTES.items():
            yield Case(f"agent: {file}: {name}", in_agent(agent, file, spoil(content, draw)), (PULL,))
        for name, make in KINDS.items():
            yield Case(f"agent: {file}: {name}", kind_in_agent(agent, make, file, world.trap), (PULL, PUSH))
        for path, value in trees(json.loads(content), draw, 60) if file in ("agent.json", "policy.json") else ():
            changed = json.dumps(put(json.loads(content), path, value)).encode()
            yield Case(f"agent: {file} {path} = {value!r:.30}", in_agent(agent, file, changed), (PULL,))
    config = json.loads((agent / "config.json").read_bytes())
    for word in WORDS:
        changed = json.dumps({**config, "env": word}).encode()
        yield Case(f"agent: env = {word!r:.40}", in_agent(agent, "config.json", changed), (PULL,))


def populations(world: World, population: Path, draw: random.Random) -> Iterator[Case]:
    """The directory of a population that a user starts later under the same name."""
    content = (population / "population.json").read_bytes()
    command = ((*EVOLVE, "{out}"),)
    for name, spoil in BYTES.items():
        yield Case(f"population: {name}", in_population(population, spoil(content, draw)), command)
    for path, value in trees(json.loads(content), draw, 60):
        changed = json.dumps(put(json.loads(content), path, value)).encode()
        yield Case(f"population: {path} = {value!r:.30}", in_population(population, changed), command)
    for where in ("population.json", "sweep.json", "logs", "lock"):
        for name, make in KINDS.items():
            yield Case(f"population: {where}: {name}", kind_in("pop", make, where, world.trap), command)


def in_agent(agent: Path, file: str, content: bytes) -> Callable[[Path], None]:
    """Copy a shared agent, replace a file, and update its size and hash in the manifest."""

    def do(run: Path) -> None:
        copy = Path(shutil.copytree(agent, run / "agent"))
        (copy / file).write_bytes(content)
        if file != "agent.json":
            manifest: dict[str, Any] = json.loads((copy / "agent.json").read_bytes())
            manifest["files"][file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            (copy / "agent.json").write_text(json.dumps(manifest))

    return do


def kind_in_agent(agent: Path, make: Callable[[Path, Path], None], file: str, trap: Path) -> Callable[[Path], None]:
    def do(run: Path) -> None:
        shutil.copytree(agent, run / "agent")
        replace_by_kind(make, Path(file), trap)(run / "agent")

    return do


def in_population(population: Path, content: bytes) -> Callable[[Path], None]:
    def do(run: Path) -> None:
        copy = Path(shutil.copytree(population, run.parent / "pop"))
        (copy / "population.json").write_bytes(content)

    return do
