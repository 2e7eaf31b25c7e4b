"""Trial plugins: algorithms in one file that need unusual parts of the core, through its public interface."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.loop.actor import Actor
from rlplug_core.plugins import algorithm
from rlplug_core.seeds import Seeds
from rlplug_core.testing import checks
from rlplug_core.testing.envs import Chain

TRIAL = Path(__file__).parents[1] / "plugins" / "trial"
NAMES = {"noisy_dqn": "NoisyDQN", "es": "ES", "two_actors": "TwoActors"}
TARGETS = {name: f"{TRIAL / name}.py:{cls}" for name, cls in NAMES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_trial_plugins_pass_all_checks(name: str) -> None:
    # Check `fresh-process` takes seconds; first-party algorithms run it.
    found = [check for check in checks(TARGETS[name], learn=True) if check.name != "fresh-process"]
    assert {check.name: check.outcome().message for check in found if check.outcome().broken} == {}


def test_trial_plugins_use_only_public_names() -> None:
    for path in sorted(TRIAL.glob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        names = [f"{node.module}.{alias.name}" for node in imports for alias in node.names]
        attributes = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
        private = [name for name in names if any(part.startswith("_") for part in name.split(".")[1:])]
        private += [name for name in attributes if name.startswith("_") and not name.startswith("__")]
        assert not private, path.name
        assert {name.partition(".")[0] for name in names} <= {
            "__future__", "collections", "dataclasses", "typing", "numpy", "torch", "gymnasium", "rlplug_core",
        }, path.name  # fmt: skip


def test_steps_of_two_actors_do_not_mix() -> None:
    """Each replayed transition of two chains leads to the place of its own action."""
    cls = algorithm(TARGETS["two_actors"])
    config = cls.Config(learning_starts=64, n_step=1)
    clock = Clock(10_000)
    learner = cls(Chain(3).spec, config, Context(Seeds(0)))
    buffer = learner.buffer()
    actors = [Actor(Chain(3), learner, learner.agent(rank, 2), buffer, clock) for rank in range(2)]
    for rank, actor in enumerate(actors):
        actor.reset(rank)
    batches = 0
    for _ in range(64):
        for rank, actor in enumerate(actors):
            step = actor.step()
            actor.buffer.add(step, rank)
            for batch in actor.buffer.batches(clock):
                place = batch.obs.argmax(1) + 2 * batch.action - 1
                inside = (place >= 0) & (place < 5)
                assert (batch.next_obs[inside].argmax(1) == place[inside]).all()
                assert (batch.next_obs[~inside] == 0).all()
                batches += 1
    assert batches > 50
    assert len(np.unique([ring.added for ring in buffer.rings.values()])) == 1
