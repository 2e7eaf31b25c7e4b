"""A loaded policy takes observations as its environment returns them, and names missing parts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.errors import UsageError
from rlplug_core.runs.messages import space_differences
from rlplug_core.runs.policy import Policy
from rlplug_core.testing.envs import Vector
from rlplug_core.types import MASK, Act, Spec, State, tree_map
from tests.tables import for_each

PLACE = spaces.Box(-1, 1, (2,), np.float32)
#: The form that agents get of Tuple((PLACE, Dict({"gear": Discrete(3), "pair": Tuple((Discrete(4), PLACE))}))).
TUPLE = spaces.Dict(
    {
        "0": PLACE,
        "1": spaces.Dict({"gear": spaces.Discrete(3), "pair": spaces.Dict({"0": spaces.Discrete(4), "1": PLACE})}),
    }
)
MASKED = spaces.Dict({"obs": PLACE, MASK: spaces.MultiBinary(3)})


class Watcher:
    """Keeps the last observation; all actions are 0."""

    def initial(self, num_envs: int) -> None:
        """Remember nothing."""

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Any, explore: bool = True) -> Act:
        self.obs = obs
        while isinstance(obs, dict):
            obs = next(iter(obs.values()))
        return Act(np.zeros(len(obs), np.int64))


def act_once(space: spaces.Space[Any], obs: Any) -> tuple[Any, Any]:
    """Return the observation that the agent gets from a policy, and the action of the policy."""

    class Env(Vector):
        obs: ClassVar[spaces.Space[Any]] = space

    agent = Watcher()
    action = Policy(agent, Env(1))(obs)  # type: ignore[arg-type]
    return tree_map(lambda part: part.tolist(), agent.obs), action


def test_tuple_becomes_dictionary() -> None:
    place = np.array([0.5, -0.5], np.float32)
    agent_obs, action = act_once(TUPLE, (place, {"gear": 2, "pair": (np.int64(3), place)}))
    assert agent_obs == {"0": [[0.5, -0.5]], "1": {"gear": [2], "pair": {"0": [3], "1": [[0.5, -0.5]]}}}
    assert np.shape(action) == ()


def test_takes_batches_of_tuples() -> None:
    places = np.zeros((4, 2), np.float32)
    agent_obs, action = act_once(TUPLE, (places, {"gear": np.arange(4) % 3, "pair": (np.arange(4), places)}))
    assert (agent_obs["1"]["gear"], agent_obs["1"]["pair"]["0"]) == ([0, 1, 2, 0], [0, 1, 2, 3])
    assert agent_obs["0"] == places.tolist()
    assert action.shape == (4,)


def test_passes_mask_with_observation() -> None:
    mask = np.array([1, 0, 1], np.int8)
    agent_obs, _ = act_once(MASKED, {"obs": np.zeros(2, np.float32), MASK: mask})
    assert agent_obs == {"obs": [[0, 0]], MASK: [[1, 0, 1]]}


@pytest.mark.parametrize(
    ("space", "obs", "message"),
    [
        (MASKED, np.zeros(2), r"is not a dictionary, .*; give it {'action_mask': info\['action_mask'\], 'obs': …}"),
        (
            MASKED,
            {"obs": np.zeros(2)},
            r"lacks 'action_mask', .*; give it {'action_mask': info\['action_mask'\], 'ob.*",
        ),
        (MASKED, {}, "lacks 'action_mask' and 'obs', .*"),
        (TUPLE, (np.zeros(2),), "lacks '1', .*; give it {'0': …, '1': …}"),
        (TUPLE, (np.zeros(2), {"gear": 1}), "lacks '1/pair', .*; give it {'gear': …, 'pair': …}"),
    ],
)
def test_missing_part_raises(space: spaces.Space[Any], obs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^this observation {message}$"):
        act_once(space, obs)


IMAGE = spaces.Box(0, 255, (2, 2), np.uint8)
PAIRS = spaces.MultiDiscrete([3, 4], dtype=np.uint8, start=[1, 0])


@for_each("space, obs, message", [
        (spaces.Discrete(7), 7, r"observation is 7, and Discrete\(7\) has 0 to 6"),
        (spaces.Discrete(7), np.array([3, -1]), r"observation is -1, and Discrete\(7\) has 0 to 6"),
        (PAIRS, [[1, 3], [3, 260]], r"observation holds 260, and MultiDiscrete\(.*\) has 0 to 3 there"),
        (PAIRS, [0, 3], r"observation holds 0, and MultiDiscrete\(.*\) has 1 to 3 there"),
        (
            TUPLE, (np.zeros(2), {"gear": 3, "pair": (0, np.zeros(2))}),
            r"observation '1/gear' is 3, and Discrete\(3\) has 0 to 2",
        ),
        (IMAGE, np.full((2, 2), 0.5), r"observation holds 0.5, and Box\(.*\) has numbers of type uint8"),
        (IMAGE, np.full((3, 2, 2), 256), r"observation holds 256, and Box\(.*\) has numbers of type uint8"),
        (IMAGE, np.full((2, 2), np.inf), r"observation holds inf, and Box\(.*\) has numbers of type uint8"),
    ])  # fmt: skip
def test_number_outside_its_space_raises(space: spaces.Space[Any], obs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^the {message}; look at the environment or the sensor that gave it$"):
        act_once(space, obs)


class Counter(Watcher):
    """Counts the calls of each row since its episode started; the count is its action."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Load nothing."""

    def initial(self, num_envs: int) -> Any:
        return {"calls": np.zeros(num_envs, np.int64)}

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Any, explore: bool = True) -> Act:
        calls = np.where(is_first, 0, recurrent_state["calls"]) + 1
        return Act(calls, {"calls": calls})


class Places(Vector):
    obs: ClassVar[spaces.Space[Any]] = PLACE


def test_keeps_memory_for_each_row() -> None:
    policy = Policy(Counter(), Places(1))  # type: ignore[arg-type]
    single = np.zeros(2)
    batch = np.zeros((3, 2))
    assert [policy(batch).tolist() for _ in range(2)] == [[1, 1, 1], [2, 2, 2]]
    assert policy.predict(batch, None, np.array([False, True, False]))[0].tolist() == [3, 1, 3]
    assert policy.predict(batch, None, np.ones(3, bool))[0].tolist() == [1, 1, 1]
    assert [int(policy(single)) for _ in range(2)] == [1, 2]
    policy.reset()
    assert int(policy(single)) == 1
    assert int(policy.predict(single, None, True)[0]) == 1


def test_continues_from_saved_memory() -> None:
    rows = np.zeros((3, 2))
    policy, restored = (Policy(Counter(), Places(1)) for _ in range(2))  # type: ignore[arg-type]
    policy(rows)
    policy.predict(rows, None, np.array([False, True, False]))
    state = policy.state_dict()
    assert policy(rows).tolist() == [3, 2, 3]
    for _ in range(2):
        restored.load_state_dict(state)
        assert restored(rows).tolist() == [3, 2, 3]


BOX, WIDER = (spaces.Box(-1, 1, (size,), np.float32) for size in (2, 3))
TWO, THREE = (f"Box({size}) of float32 in [-1, 1]" for size in (2, 3))


@pytest.mark.parametrize(
    ("here", "there", "message"),
    [
        (BOX, BOX, ""),
        (BOX, WIDER, f"its observations are {TWO} instead of {THREE}"),
        (
            spaces.Dict({"a": BOX, "c": BOX, "d": BOX}),
            spaces.Dict({"a": WIDER, "b": BOX, "d": BOX}),
            "its observations lack 'b', its observations have 'c' too, "
            f"its observations/a are {TWO} instead of {THREE}",
        ),
        (spaces.Dict(a=spaces.Dict({})), spaces.Dict(a=spaces.Dict(b=BOX)), "its observations/a lack 'b'"),
    ],
)
def test_message_names_only_different_parts(here: Any, there: Any, message: str) -> None:
    action = spaces.Discrete(2)
    assert space_differences(Spec(here, action, 1, "here"), Spec(there, action, 1, "there")) == message
