"""A loaded policy is shown what the environment shows: tuples too; what it lacks is said in one sentence."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.errors import UsageError
from rlplug_core.runs.messages import apart
from rlplug_core.runs.policy import Policy
from rlplug_core.testing.envs import Vector
from rlplug_core.types import MASK, Act, Spec, State, tree_map
from tests.tables import for_each

PLACE = spaces.Box(-1, 1, (2,), np.float32)
#: What becomes of Tuple((PLACE, Dict({"gear": Discrete(3), "pair": Tuple((Discrete(4), PLACE))}))).
TUPLE = spaces.Dict(
    {
        "0": PLACE,
        "1": spaces.Dict({"gear": spaces.Discrete(3), "pair": spaces.Dict({"0": spaces.Discrete(4), "1": PLACE})}),
    }
)
MASKED = spaces.Dict({"obs": PLACE, MASK: spaces.MultiBinary(3)})


class Watching:
    """Keeps what it sees; its actions are 0."""

    def initial(self, num_envs: int) -> None:
        """Nothing to remember."""

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Any, explore: bool = True) -> Act:
        self.obs = obs
        while isinstance(obs, dict):
            obs = next(iter(obs.values()))
        return Act(np.zeros(len(obs), np.int64))


def shown(space: spaces.Space[Any], obs: Any) -> tuple[Any, Any]:
    """What an agent sees of observations that a policy is given, and what the policy answers."""

    class Shown(Vector):
        obs: ClassVar[spaces.Space[Any]] = space

    agent = Watching()
    action = Policy(agent, Shown(1))(obs)  # type: ignore[arg-type]
    return tree_map(lambda part: part.tolist(), agent.obs), action


def test_a_tuple_becomes_the_dictionary_that_agents_know() -> None:
    place = np.array([0.5, -0.5], np.float32)
    seen, action = shown(TUPLE, (place, {"gear": 2, "pair": (np.int64(3), place)}))
    assert seen == {"0": [[0.5, -0.5]], "1": {"gear": [2], "pair": {"0": [3], "1": [[0.5, -0.5]]}}}
    assert np.shape(action) == ()


def test_a_batch_of_tuples() -> None:
    places = np.zeros((4, 2), np.float32)
    seen, action = shown(TUPLE, (places, {"gear": np.arange(4) % 3, "pair": (np.arange(4), places)}))
    assert (seen["1"]["gear"], seen["1"]["pair"]["0"]) == ([0, 1, 2, 0], [0, 1, 2, 3])
    assert seen["0"] == places.tolist()
    assert action.shape == (4,)


def test_a_mask_comes_with_the_observation() -> None:
    mask = np.array([1, 0, 1], np.int8)
    seen, _ = shown(MASKED, {"obs": np.zeros(2, np.float32), MASK: mask})
    assert seen == {"obs": [[0, 0]], MASK: [[1, 0, 1]]}


@pytest.mark.parametrize(
    ("space", "obs", "said"),
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
def test_a_missing_part_is_said_in_one_sentence(space: spaces.Space[Any], obs: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"^this observation {said}$"):
        shown(space, obs)


IMAGE = spaces.Box(0, 255, (2, 2), np.uint8)
PAIRS = spaces.MultiDiscrete([3, 4], dtype=np.uint8, start=[1, 0])


@for_each("space, obs, sentence", [
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
def test_a_number_that_its_space_does_not_have_is_said(space: spaces.Space[Any], obs: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^the {sentence}; look at the environment or the sensor that gave it$"):
        shown(space, obs)


class Counting(Watching):
    """Remembers how often each row was asked since its episode began, and answers with that number."""

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """There is nothing to load."""

    def initial(self, num_envs: int) -> Any:
        return {"asked": np.zeros(num_envs, np.int64)}

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Any, explore: bool = True) -> Act:
        asked = np.where(is_first, 0, recurrent_state["asked"]) + 1
        return Act(asked, {"asked": asked})


class Places(Vector):
    obs: ClassVar[spaces.Space[Any]] = PLACE


def test_a_policy_with_memory_has_one_for_each_row_of_a_batch() -> None:
    policy, one, three = Policy(Counting(), Places(1)), np.zeros(2), np.zeros((3, 2))  # type: ignore[arg-type]
    assert [policy(three).tolist() for _ in range(2)] == [[1, 1, 1], [2, 2, 2]]
    assert policy.predict(three, None, np.array([False, True, False]))[0].tolist() == [3, 1, 3]
    assert policy.predict(three, None, np.ones(3, bool))[0].tolist() == [1, 1, 1]
    assert [int(policy(one)) for _ in range(2)] == [1, 2]
    policy.reset()
    assert int(policy(one)) == 1
    assert int(policy.predict(one, None, True)[0]) == 1


def test_a_policy_continues_from_the_state_of_its_memory() -> None:
    rows = np.zeros((3, 2))
    policy, other = (Policy(Counting(), Places(1)) for _ in range(2))  # type: ignore[arg-type]
    policy(rows)
    policy.predict(rows, None, np.array([False, True, False]))
    state = policy.state_dict()
    assert policy(rows).tolist() == [3, 2, 3]
    for _ in range(2):
        other.load_state_dict(state)
        assert other(rows).tolist() == [3, 2, 3]


BOX, WIDER = (spaces.Box(-1, 1, (size,), np.float32) for size in (2, 3))
TWO, THREE = (f"Box({size}) of float32 in [-1, 1]" for size in (2, 3))


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (BOX, BOX, ""),
        (BOX, WIDER, f"its observations are {TWO} instead of {THREE}"),
        (
            spaces.Dict({"a": BOX, "c": BOX, "d": BOX}), spaces.Dict({"a": WIDER, "b": BOX, "d": BOX}),
            "its observations lack 'b', its observations have 'c' too, "
            f"its observations/a are {TWO} instead of {THREE}",
        ),
        (spaces.Dict(a=spaces.Dict({})), spaces.Dict(a=spaces.Dict(b=BOX)), "its observations/a lack 'b'"),
    ],
)  # fmt: skip
def test_spaces_that_differ_are_told_apart_by_their_difference_alone(here: Any, there: Any, said: str) -> None:
    action = spaces.Discrete(2)
    assert apart(Spec(here, action, 1, "here"), Spec(there, action, 1, "there")) == said
