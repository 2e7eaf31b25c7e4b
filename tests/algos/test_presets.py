"""Every preset, with the presets it extends, makes a learner."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.clock import Clock
from rlplug_core.errors import RlplugError
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import algorithm as find_algorithm
from rlplug_core.plugins import records
from rlplug_core.plugins.preset_files import chain
from rlplug_core.plugins.presets import preset
from rlplug_core.testing.envs import LongRecall
from rlplug_core.types import Goals, Spec, tree_map
from tests.tables import for_each


def box(size: int) -> spaces.Box:
    return spaces.Box(-1, 1, (size,), np.float32)


#: The spaces of the environments of presets; most of these packages are not required by rlplug-algos.
SPACES: dict[str, tuple[spaces.Space, spaces.Space]] = {
    "CartPole-v0": (box(4), spaces.Discrete(2)), "CartPole-v1": (box(4), spaces.Discrete(2)),
    "tensor/CartPole-v1": (box(4), spaces.Discrete(2)), "tensor/Pendulum-v1": (box(3), box(1)),
    "Acrobot-v1": (box(6), spaces.Discrete(3)), "MountainCar-v0": (box(2), spaces.Discrete(3)),
    "LunarLander-v3": (box(8), spaces.Discrete(4)), "Pendulum-v1": (box(3), box(1)),
    "BipedalWalker-v3": (box(24), box(4)), "FrozenLake-v1": (spaces.Discrete(16), spaces.Discrete(4)),
    "HalfCheetah-v5": (box(17), box(6)), "ALE/Pong-v5": (spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)),
    "tensor/MinAtar-Breakout-v1": (spaces.Box(0, 1, (10, 10, 4), np.bool_), spaces.Discrete(3)),
    "MinAtar/Breakout-v1": (spaces.Box(0, 1, (10, 10, 4), np.bool_), spaces.Discrete(3)),
    "MiniGrid-Empty-8x8-v0": (
        spaces.Dict({"direction": spaces.Discrete(4), "image": spaces.Box(0, 255, (7, 7, 3), np.uint8)}),
        spaces.Discrete(7),
    ),
    "BabyAI-GoToObjS4-v0": (
        spaces.Dict({"direction": spaces.Discrete(4), "image": spaces.Box(0, 255, (7, 7, 20), np.uint8)}),
        spaces.Discrete(7),
    ),
    "CliffWalking-v1": (spaces.Discrete(48), spaces.Discrete(4)),
    "Taxi-v4": (spaces.Discrete(500), spaces.Discrete(6)),
    "FetchReach-v4": (
        spaces.Dict({"achieved_goal": box(3), "desired_goal": box(3), "observation": box(10)}), box(4),
    ),
    "highway-fast-v0": (spaces.Box(-np.inf, np.inf, (5, 5), np.float32), spaces.Discrete(5)),
    "pettingzoo/mpe2.simple_spread_v3": (box(18), spaces.Discrete(5)),
    "pettingzoo/mpe2.simple_speaker_listener_v4": (box(11), spaces.Discrete(5)),
    "rlplug_core.testing.envs:LongRecall": (LongRecall.obs, LongRecall.action),
}  # fmt: skip


#: Observations of environments without a preset of their own, by kind.
KINDS = {
    "pixels": spaces.Box(0, 255, (64, 64, 3), np.uint8),
    "continuous": box(5),
    "discrete": box(5),
    "multi-agent": box(5),
}


def spaces_of(env: str, learner: type[Any]) -> tuple[spaces.Space, spaces.Space]:
    """Return the spaces of an environment, or of one of a kind in which the learner can act."""
    if env in SPACES:
        return SPACES[env]
    return KINDS[env], box(2) if env == "continuous" or "Discrete" not in learner.actions else spaces.Discrete(3)


def tables() -> Iterator[tuple[str, str]]:
    """Yield each algorithm with each environment of its presets."""
    for record in records():
        if record.group == "algorithms" and record.distribution == "rlplug-algos":
            yield from ((record.id, kind) for presets in chain(record) for kind in presets.kinds)
            patterns = {name for presets in chain(record) for name in presets.tables} - {"default"}
            for pattern in patterns:
                fitting = [env for env in SPACES if fnmatchcase(env, pattern)]
                assert fitting, f"the presets of {record.id} have a table for {pattern}: say what its spaces are"
                yield from ((record.id, env) for env in fitting)


def test_each_preset_makes_learner_agent_and_buffer() -> None:
    pairs = sorted(set(tables()))
    assert len(pairs) >= 200
    faults = []
    for algorithm, env in pairs:
        try:
            make_everything(algorithm, env)
        except (RlplugError, AssertionError, ValueError) as error:
            faults.append(f"{algorithm} on {env}: {error}")
    assert not faults, faults


def make_everything(algorithm: str, env: str) -> None:
    """Make the learner, act once, and read batches of the empty buffer."""
    bare = {"eval_wrap": []}  # a wrapper may belong to another package
    plan = Plan.make(algorithm, env, {**preset(algorithm, env, env if env in KINDS else ""), **bare})
    seen, acted = spaces_of(env, plan.learner)
    goals = Goals(lambda achieved, desired: -np.ones(len(desired), np.float32))
    learner = plan.make_learner(Spec(seen, acted, plan.options.num_envs, env, goals=goals))
    agent = learner.agent()
    num_envs = plan.options.num_envs
    clock = Clock(1)
    obs = tree_map(lambda value: np.stack([value] * num_envs), seen.sample())
    act = agent.act(obs, np.ones(num_envs, bool), agent.initial(num_envs), clock)
    assert act.action.shape == (num_envs, *acted.shape)
    assert not list(learner.buffer().batches(clock)), "there is nothing to learn from before the first step"


#: Algorithms that share networks and buffers, and differ only in losses.
FAMILIES = {
    "continuous": ("ddpg", "td3"),
    "pixels": ("ddpg", "td3", "sac", "tqc", "crossq", "cql", "iql", "sac-discrete"),
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_presets_of_a_family_agree_about_kinds_of_environments(kind: str) -> None:
    shared = ("net.init", "net.normalize_obs", "buffer_size", "batch_size")
    options = {name: preset(name, "Unknown-v0", kind) for name in FAMILIES[kind]}
    values = {name: [preset_options.get(option) for option in shared] for name, preset_options in options.items()}
    assert len({str(value) for value in values.values()}) == 1, values


def continuous_algorithms() -> list[str]:
    """Return algorithms with their own policies for continuous actions."""
    names = [one.id for one in records() if one.group == "algorithms" and one.distribution == "rlplug-algos"]
    return sorted(
        name for name in names if "Box" in find_algorithm(name).actions and name not in ("independent", "self-play")
    )


@for_each("algorithm", continuous_algorithms())
def test_untrained_policy_uses_the_whole_range_of_actions(algorithm: str) -> None:
    """Also for large observations, because the gradient of a saturated tanh is 0. Speeds in MuJoCo reach 10."""
    plan = Plan.make(algorithm, "continuous", {**preset(algorithm, "continuous", "continuous"), "eval_wrap": []})
    obs = np.random.default_rng(0).normal(scale=10, size=(256, 17)).astype(np.float32)
    agent = plan.make_learner(Spec(box(17), box(6), len(obs), "continuous")).agent()
    act = agent.act(obs, np.ones(len(obs), bool), agent.initial(len(obs)), Clock(1), explore=False)
    assert np.mean(np.abs(act.action) > 0.99) < 0.05


def test_ppo_clip_range_for_atari_follows_its_sources() -> None:
    """`lin_0.1` in Stable-Baselines3's zoo, `lambda f: f * 0.1` in OpenAI Baselines (defaults.py, atari)."""
    plan = Plan.make("ppo", "ALE/Pong-v5", preset("ppo", "ALE/Pong-v5"))
    clip = plan.config.schedules["clip_range"]
    assert [clip(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.1, 0.05, 0.0])


@pytest.mark.parametrize(("algorithm", "start"), [("a2c", 1.0), ("a3c", 1.0), ("impala", 1 / 640**2)])
def test_rmsprop_start_for_atari_follows_its_sources(algorithm: str, start: float) -> None:
    """TensorFlow's mean square starts at 1. Gradients of IMPALA's sums are 640 times those of our means."""
    config = Plan.make(algorithm, "ALE/Pong-v5", preset(algorithm, "ALE/Pong-v5")).config
    state = config.optimizer_kwargs.rule(config.optimizer).start(torch.zeros(1))
    assert state["square"].item() == pytest.approx(start, rel=0.02)
