"""Frozen parameters stay unchanged with every optimizer, also after a resume; the rest learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlplug_core.errors import UsageError
from rlplug_core.runs.api import resume, train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.run import open_run
from tests.algos.conftest import ENVS, make_runner

SMALL = {"total_timesteps": 400, "num_envs": 2, "eval_episodes": 1, "final_eval_episodes": 1}
REPLAY = {**SMALL, "learning_starts": 50, "batch_size": 16}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "Bandit", {**SMALL, "n_steps": 16, "freeze": ("critic",)}),
    "ppo, decay": (
        "ppo", "Bandit",
        {**SMALL, "n_steps": 16, "freeze": ("policy.encoder",), "optimizer": "adamw",
         "optimizer_kwargs.weight_decay": 0.1},
    ),
    "a2c": ("a2c", "Bandit", {**SMALL, "freeze": ("policy.outputs.bias",)}),
    "acktr": ("acktr", "Bandit", {**SMALL, "freeze": ("critic",)}),
    "sac": ("sac", "Continuous", {**REPLAY, "random_steps": 10, "freeze": ("critics.members.1", "temperature")}),
    "sac, by autograd": (
        "sac", "Continuous", {**REPLAY, "random_steps": 10, "freeze": ("policy",), "net.activation": "gelu"},
    ),
    "dqn": ("dqn", "Bandit", {**REPLAY, "freeze": ("q_network.encoder",)}),
}  # fmt: skip


def parts(learner: Any, frozen: tuple[str, ...]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return copies of the frozen and of the other parameters."""
    named = {name: one.detach().clone() for name, one in learner.named_parameters() if one.requires_grad}
    held = {name for name in named if any(f"{name}.".startswith(f"{one}.") for one in frozen)}
    return {name: named[name] for name in held}, {name: named[name] for name in named.keys() - held}


@pytest.mark.parametrize("case", CASES)
def test_frozen_parts_stay_and_the_rest_learns(case: str) -> None:
    algorithm, env, options = CASES[case]
    runner = make_runner(algorithm, env, options)
    held, free = parts(runner.learner, options["freeze"])
    runner.run(lambda: None)
    held_after, free_after = parts(runner.learner, options["freeze"])
    assert held
    assert all(torch.equal(one, held_after[name]) for name, one in held.items())
    assert any(not torch.equal(one, free_after[name]) for name, one in free.items())


def test_observation_scaling_of_a_frozen_part_stays() -> None:
    options = {**SMALL, "n_steps": 16, "freeze": ("policy",), "net.normalize_obs": True}
    runner = make_runner("ppo", "Bandit", options)
    obs = torch.randn(5, *runner.actor.env.spec.obs.shape)
    before = runner.learner.policy(obs).detach().clone()
    runner.run(lambda: None)
    assert torch.equal(runner.learner.policy(obs), before)


def test_resumed_run_keeps_its_frozen_parts(tmp_path: Path) -> None:
    options = {**SMALL, "n_steps": 16, "freeze": ["critic"], "runner": "sync"}
    run = train("ppo", f"{ENVS}Bandit", options, out=tmp_path, name="run", hooks=False)
    before = learner_state(run.path)
    resume(run, total_timesteps=800, hooks=False)
    after = learner_state(run.path)
    assert before.keys() == after.keys()
    assert {name for name in before if torch.equal(before[name], after[name])} == {
        name for name in before if name.startswith("critic.")
    }


def learner_state(path: Path) -> dict[str, torch.Tensor]:
    _, components, _, _ = Checkpoints(open_run(path).directory.checkpoints_path).load(["final"])
    state = components["learner"]
    return {name: one for name, one in state.items() if isinstance(one, torch.Tensor) and one.is_floating_point()}


@pytest.mark.parametrize(
    ("algorithm", "name", "message"),
    [
        ("ppo", "critics", "PPO trains nothing of this name; did you mean 'critic'"),
        ("ppo", "policy.enc", "trains nothing of this name"),
        ("trpo", "policy", "TRPO changes policy.* without an optimizer"),
    ],
)
def test_unknown_parts_to_freeze_raise(
    make_learner: Callable[..., Any], algorithm: str, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_learner(algorithm, "Bandit", freeze=(name,))
