"""If the state of an environment was not saved, a resumed run starts new episodes, separate from the old ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Act, Array, State, Step


class Right:
    """Always goes right."""

    def weights(self) -> State:
        return {}

    def initial(self, num_envs: int) -> None:
        return None

    def act(self, obs: Any, is_first: Array, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        return Act(np.ones(len(is_first), dtype=np.int64))

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None: ...


def make_actor(buffer: Any) -> Actor:
    actor = Actor(Chain(2), None, Right(), buffer, Clock(1000))  # type: ignore[arg-type]
    actor.reset(3)
    return actor


def steps(actor: Actor, count: int) -> list[Step]:
    return [actor.step() for _ in range(count)]


def test_environment_without_saved_state_starts_again() -> None:
    replay = ReplayBuffer(100, ReplaySchedule(4, 1, 1, 8), 1, 0.9, Seeds(0))
    source = make_actor(replay)
    for step in steps(source, 2):
        replay.add(step)
    assert not replay.data.ended[1].any()  # type: ignore[union-attr]
    expected = step.next_obs.copy()
    resumed = make_actor(replay)
    resumed.load_state_dict({**source.state_dict(), "env": {"inexact": "a closure"}})
    assert resumed.is_first.all()
    assert replay.data.ended[1].all()  # type: ignore[union-attr]
    assert not replay.data.terminated[1].any()  # type: ignore[union-attr]
    for step in steps(resumed, 1):
        replay.add(step)
    np.testing.assert_array_equal(replay.gather(np.array([2, 3])).next_obs.numpy(), expected)


def test_restart_drops_unfinished_rollout_and_keeps_full_one() -> None:
    buffer = RolloutBuffer(4)
    source = make_actor(buffer)
    for step in steps(source, 3):
        buffer.add(step)
    buffer.restart()
    assert buffer.position == 0
    for step in steps(source, 4):
        buffer.add(step)
    buffer.restart()
    assert len(list(buffer.batches(Clock(1)))) == 1
