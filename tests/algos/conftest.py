"""Fixtures of the tests of algorithms: learners and runners on the small environments of rlplug-core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlplug_core.clock import Clock
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import torch_settings
from rlplug_core.plugins.presets import preset

ENVS = "rlplug_core.testing.envs:"


def env_id(env: str) -> str:
    """Return the id of a class of `rlplug_core.testing.envs`, or a `file.py:Class` unchanged."""
    return env if ":" in env else ENVS + env


def plan_of(algorithm: str, env: str, options: dict[str, Any]) -> Plan:
    """Return a run's plan, with the presets that make one algorithm a variant of another."""
    return Plan.make(algorithm, env_id(env), {**preset(algorithm, env_id(env)), **options})


def make_learner(algorithm: str, env: str, options: dict[str, Any]) -> Any:
    """Make a learner of `algorithm` (an id) on an environment of `rlplug_core.testing.envs`."""
    plan = plan_of(algorithm, env, options)
    return plan.make_learner(plan.make_env(1).spec)


def make_runner(algorithm: str, env: str, options: dict[str, Any]) -> Any:
    """Make a runner that is ready for its first step."""
    plan = plan_of(algorithm, env, options)
    return build(plan, Clock(plan.options.total_timesteps))


@pytest.fixture(name="make_learner")
def _make_learner() -> Callable[..., Any]:
    """Make one: `make_learner("ppo", "Bandit", clip_range=0.1)`; write nested options as `**{"net.hidden": []}`."""
    return lambda algorithm, env, **options: make_learner(algorithm, env, options)


@pytest.fixture
def train_runner() -> Callable[..., Any]:
    """Train without a run directory and return the runner: `train_runner("ppo", "Bandit", total_timesteps=1000)`."""

    def train(algorithm: str, env: str, **options: Any) -> Any:
        runner = make_runner(algorithm, env, options)
        runner.run(lambda: None)
        return runner

    return train


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Use the settings of a training process, and seed torch."""
    with torch_settings(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
