"""What the tests of the algorithms share: learners and runners built on the small environments of rlplug-core."""

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


def word(env: str) -> str:
    """A class of `rlplug_core.testing.envs`, or a `file.py:Class` as it is."""
    return env if ":" in env else ENVS + env


def plan_of(algorithm: str, env: str, options: dict[str, Any]) -> Plan:
    """A run's plan; what makes an algorithm a variant of another comes from its presets."""
    return Plan.make(algorithm, word(env), {**preset(algorithm, word(env)), **options})


def make_learner(algorithm: str, env: str, options: dict[str, Any]) -> Any:
    """A learner of `algorithm` (an id) on an environment of `rlplug_core.testing.envs`."""
    plan = plan_of(algorithm, env, options)
    return plan.make_learner(plan.make_env(1).spec)


def make_runner(algorithm: str, env: str, options: dict[str, Any]) -> Any:
    """A runner ready for its first step."""
    plan = plan_of(algorithm, env, options)
    return build(plan, Clock(plan.options.total_timesteps))


@pytest.fixture
def learner() -> Callable[..., Any]:
    """`learner("ppo", "Bandit", clip_range=0.1)`; a nested option is written `**{"net.hidden": []}`."""
    return lambda algorithm, env, **options: make_learner(algorithm, env, options)


@pytest.fixture
def trained() -> Callable[..., Any]:
    """`trained("ppo", "Bandit", total_timesteps=1000)`: a runner that has run to its end, without a run directory."""

    def train(algorithm: str, env: str, **options: Any) -> Any:
        runner = make_runner(algorithm, env, options)
        runner.run(lambda: None)
        return runner

    return train


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """The settings of a training process, and everything random in torch from a fixed seed."""
    with torch_settings(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
