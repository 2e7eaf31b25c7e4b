"""Environment workers give exactly the transitions of one process, also with wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlplug_core.buffers.hindsight import goals_of
from rlplug_core.errors import UsageError
from rlplug_core.loop.build import training_env
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import sample
from rlplug_core.protocols import Env
from tests.core.fakes import TINY

WALK = __file__.replace("test_workers.py", "walks.py")
GOALS = __file__.replace("test_workers.py", "test_goals.py")


def env_of(id: str, workers: int, *wrap: str) -> Env:
    options = {"num_envs": 5, "env_workers": workers, "total_timesteps": 100, "wrap": list(wrap)}
    return training_env(Plan.make(TINY, id, options))


@pytest.mark.parametrize(
    ("id", "wrap"),
    [
        (f"{WALK}:Walk", ()),
        (f"{WALK}:Rich", ()),
        ("CartPole-v1", ("time-limit:steps=9", "sticky-actions", "frame-stack:frames=2")),
        ("Pendulum-v1", ("time-limit:steps=11", "scale-reward")),
        ("ALE/Breakout-v5", ("atari:noop_max=5,frame_skip=2",)),
    ],
)
def test_workers_give_the_transitions_of_one_process(id: str, wrap: tuple[str, ...]) -> None:
    if id.startswith("ALE"):
        pytest.importorskip("ale_py", reason="the extra rlplug-envs[atari] is not installed")
    single, several = env_of(id, 1, *wrap), env_of(id, 2, *wrap)
    try:
        assert (single.spec.obs, single.spec.action) == (several.spec.obs, several.spec.action)
        single.spec.action.seed(0)
        states = []
        actions = [sample(single.spec.action, 5) for _ in range(60)]
        for env in (single, several):
            texts = [as_text(env.reset(7))] + [as_text(env.step(action)) for action in actions[:30]]
            states.append(env.state_dict())
            states.append([*texts, *(as_text(env.step(action)) for action in actions[30:])])
        assert states[1] == states[3]
        several.load_state_dict(states[2])
        assert [as_text(several.step(action)) for action in actions[30:]] == states[3][31:]
    finally:
        single.close()
        several.close()


def as_text(now: Any) -> str:
    """All fields of a timestep with exact numbers."""
    with np.printoptions(threshold=10**9, floatmode="unique"):
        digest = [tree_bytes(part) for part in (now.obs, now.final_obs, now.reward, now.terminated, now.truncated)]
        return f"{digest} {now.is_first} {now.valid} {now.episodes} {now.ended} {now.count}"


def tree_bytes(tree: Any) -> Any:
    return {name: tree_bytes(part) for name, part in tree.items()} if isinstance(tree, dict) else hash(tree.tobytes())


def test_values_that_cannot_be_pickled_raise() -> None:
    env: Any = env_of("CartPole-v1", 2)
    try:
        with pytest.raises(UsageError, match="cannot be sent to other processes; leave --env-workers at 1"):
            env.inside(lambda env: env)
    finally:
        env.close()


@pytest.mark.parametrize("name", ["Point", "OneByOne", "Locked"])
def test_goals_get_the_rewards_of_one_process(name: str) -> None:
    """A worker computes them, because its environment may not be picklable."""
    achieved, desired = np.random.default_rng(0).uniform(-1, 1, (2, 50, 2))
    found = []
    for workers in (1, 2):
        env = env_of(f"{GOALS}:{name}", workers)
        try:
            goals = goals_of(env.spec)
            ends = None if goals.terminated is None else goals.terminated(achieved, desired).tolist()
            found.append((goals.reward(achieved, desired).tolist(), ends))
        finally:
            env.close()
    assert found[0] == found[1]


def test_wrapper_that_changes_rewards_removes_the_goals_of_workers() -> None:
    env = env_of(f"{GOALS}:Point", 2, "gymnasium:ClipReward:max_reward=1")
    try:
        with pytest.raises(UsageError, match="her replays other goals, and ClipReward around"):
            goals_of(env.spec)
    finally:
        env.close()
