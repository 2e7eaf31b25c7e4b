"""Environments that raise where a forbidden action is taken: nothing on our side takes one, whatever is tried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec

from rlplug_core.config.options import Config
from rlplug_core.errors import BadEnv, UsageError
from rlplug_core.loop.env_timing import seconds_per_step
from rlplug_core.nets.actions import legal, sample, shape_of
from rlplug_core.plugins.single_wrappers import Single
from rlplug_envs.adapter import Adapter
from rlplug_envs.agents import Agents
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.games import Game, Parallel, Turns
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.wrappers.actions import ActionRepeat, ActionRepeatConfig, StickyActions, StickyActionsConfig, forbids
from rlplug_envs.wrappers.flatten import Flatten
from rlplug_envs.wrappers.frames import FrameStack, FrameStackConfig
from rlplug_envs.wrappers.observations import NormalizeObs, NormalizeObsConfig
from tests.envs.strict import Hiding, Inside, Several, Strict
from tests.tables import for_each

KINDS = [Strict, Inside, Several]


class Nested(Strict):
    """The choice lies in a dictionary."""

    action_space = spaces.Dict({"deep": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2)))})

    def check(self, action: Any) -> None:
        super().check(action["deep"][0] + 1)


SIZES = {"hunter": 3, "prey": 5}


class Hunt(ParallelEnv[str, Any, int]):
    """Two agents with different spaces, each of whom may make every other choice, with its mask beside what it sees."""

    metadata = {"name": "hunt", "is_parallelizable": True}
    render_mode = None
    possible_agents = list(SIZES)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        seen = spaces.Box(-1, 1, (2 if agent == "prey" else 1,), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.MultiBinary(SIZES[agent])})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(SIZES[agent])

    def seen(self) -> dict[str, Any]:
        self.masks = {name: np.int8([(choice + self.time) % 2 == 0 for choice in range(SIZES[name])]) for name in SIZES}
        shapes = {name: self.observation_space(name)["observation"].shape for name in SIZES}
        return {
            name: {"observation": np.full(shapes[name], self.time / 20, np.float32), "action_mask": self.masks[name]}
            for name in SIZES
        }

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.time = list(SIZES), 0
        return self.seen(), {name: {} for name in SIZES}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        for name, choice in actions.items():
            if not self.masks[name][choice]:
                raise ValueError(f"{name} may not do {choice}")
        self.time += 1
        over = self.time == 20
        self.agents = [] if over else self.agents
        each = dict.fromkeys
        return self.seen(), each(SIZES, 1.0), each(SIZES, over), each(SIZES, False), {name: {} for name in SIZES}


def hunt(worlds: int = 1, inexact: str | None = "") -> Agents:
    return Agents(lambda: Parallel(Hunt()), worlds, "hunt", inexact)


class Partly(ParallelEnv[str, Any, int]):
    """Two agents with the same spaces; the `info` of the second alone has a mask, from the step `begins` on."""

    metadata = {"name": "partly", "is_parallelizable": True}
    render_mode = None
    possible_agents = ["free", "bound"]

    def __init__(self, begins: int = 0) -> None:
        self.begins = begins

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(21)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def told(self) -> dict[str, Any]:
        self.mask = np.int8([self.time % 2, 1 - self.time % 2, 0])
        return {"free": {}, "bound": {"action_mask": self.mask} if self.time >= self.begins else {}}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.time = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 0), self.told()

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        if not self.mask[actions["bound"]]:
            raise ValueError(f"bound may not do {actions['bound']}")
        self.time += 1
        over, all, each = self.time == 20, self.possible_agents, dict.fromkeys
        self.agents = [] if over else self.agents
        return each(all, self.time), each(all, 1.0), each(all, over), each(all, False), self.told()


@pytest.mark.parametrize("make", [lambda: Parallel(Partly()), lambda: Turns(parallel_to_aec(Partly()))])
def test_agents_have_masks_where_the_first_has_none(make: Callable[[], Game]) -> None:
    """The self-test and the walk take random allowed actions, and a forbidden one raises."""
    env = Agents(make, 2, "partly")
    assert env.spec.inexact == ""
    env.spec.action.seed(0)
    now = env.reset(0)
    for _ in range(150):
        mask = now.obs["action_mask"]
        assert mask[[0, 2]].all()  # who is told none may do everything
        now = env.step(legal(env.spec.action, sample(env.spec.action, 4), mask))
    assert mask[1].sum() == mask[3].sum() == 1


def test_a_mask_that_comes_later_than_the_reset_is_said() -> None:
    env = Agents(lambda: Parallel(Partly(begins=1)), 1, "partly", "")
    env.reset(0)
    with pytest.raises(BadEnv, match="partly: the info of bound has an 'action_mask', but after the first reset"):
        env.step(np.array([0, 1]))


def test_a_mask_that_stops_in_the_middle_of_an_episode_is_said() -> None:
    world = Partly()
    env = Agents(lambda: Parallel(world), 1, "partly", "")
    env.reset(0)
    world.begins = 99
    with pytest.raises(BadEnv, match="partly: info has no 'action_mask' in the middle of an episode"):
        env.step(np.array([0, 1]))


def test_agents_with_different_spaces_are_tried_out_with_allowed_actions() -> None:
    assert hunt(inexact=None).spec.inexact == ""
    assert seconds_per_step(hunt()) > 0


def test_agents_with_different_spaces_keep_to_their_masks_under_sticky_actions() -> None:
    assert self_test(lambda: StickyActions(hunt(2), StickyActionsConfig(probability=0.7))) == ""


def test_a_stack_of_frames_leaves_each_kind_its_mask() -> None:
    env, bare = FrameStack(hunt(), FrameStackConfig(frames=2)), hunt()
    seen, plain = env.reset(0).obs, bare.reset(0).obs
    for kind in SIZES:
        assert seen[kind].keys() == env.spec.obs[kind].spaces.keys()  # type: ignore[index]
        assert np.array_equal(seen[kind]["action_mask"], plain[kind]["action_mask"])


def test_spaces_of_several_kinds_are_not_made_one_vector() -> None:
    with pytest.raises(UsageError, match="flatten makes one vector, and the agents of hunt have different spaces"):
        Flatten(hunt(), Config())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_tried_out_with_allowed_actions(kind: type[Strict]) -> None:
    assert SerialEnvs(kind, 2).spec.inexact == ""


@for_each("kind", KINDS)
@for_each("mode", AutoresetMode)
def test_vector_environments_are_tried_out_with_allowed_actions(kind: type[Strict], mode: AutoresetMode) -> None:
    assert Adapter(lambda: SyncVectorEnv([kind] * 3, autoreset_mode=mode)).spec.inexact == ""


def test_hidden_state_shows_though_masks_then_differ() -> None:
    """Each continuation goes by its own masks, or it would do what is forbidden there."""
    assert "differs" in SerialEnvs(Hiding, 1).spec.inexact


def test_a_mask_that_does_not_fit_is_said_in_one_sentence() -> None:
    class Short(Strict):
        action_space = spaces.Discrete(4)

    with pytest.raises(UsageError, match="the 'action_mask' of Short-v0 has 3 entries, and its actions, Discrete"):
        SerialEnvs(Short, 1, "Short-v0")


@pytest.mark.parametrize("wrong", [-1e9, -np.inf, np.nan])
def test_a_mask_in_the_observation_that_is_added_to_logits_is_refused(wrong: float) -> None:
    """Every number but 0 allows, so such a mask would allow what it forbids, and forbid all else."""

    class Added(Strict):
        observation_space = spaces.Dict(obs=spaces.Box(-1, 1, (1,)), action_mask=spaces.Box(-np.inf, np.inf, (3,)))

        def seen(self) -> Any:
            mask = [0, wrong if self.time == 2 else 0, 0]
            return {"obs": np.zeros(1, np.float32), "action_mask": np.array(mask, np.float32)}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.time = 0
            return self.seen(), {}

        def step(self, action: Any) -> Any:
            self.time += 1
            return self.seen(), 0.0, False, False, {}

    said = f"step 2 of its episode: the observation 'action_mask' holds {wrong:g}; give 1 for each choice that is allow"
    with pytest.raises(BadEnv, match=said.replace("+", ".")):
        SerialEnvs(Added, 2, "Added-v0")


@pytest.mark.parametrize("length", [1, 2])
def test_a_mask_that_changes_its_length_is_said(length: int) -> None:
    """Also one of a single entry, which numpy would spread over all choices."""

    class Shrinking(Walk):
        def step(self, action: Any) -> Any:
            *told, info = super().step(action)
            return *told, {"action_mask": info["action_mask"][: length if self.time == 2 else None]}

    said = rf"Walk: info\['action_mask'\] has shape \({length},\), and in the first reset it had \(3,\)"
    env = SerialEnvs(Shrinking, 1, "Walk", inexact="")
    vector = Adapter(lambda: SyncVectorEnv([Shrinking], autoreset_mode=AutoresetMode.NEXT_STEP), "Walk", inexact="")
    for one in (env, vector):
        one.reset(0)
        one.step(np.zeros(1, np.int64))
        with pytest.raises(BadEnv, match=said):
            one.step(np.zeros(1, np.int64))


class Walk(gymnasium.Env[Any, Any]):
    """Says in `info` that every choice is allowed."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def told(self) -> tuple[Any, dict[str, Any]]:
        return np.float32([self.time]), {"action_mask": np.ones(3, np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.told()

    def step(self, action: Any) -> Any:
        self.time += 1
        obs, info = self.told()
        return obs, 1.0, False, False, info


@pytest.mark.parametrize(
    ("words", "instead"),
    [("MaxAndSkipObservation:skip=4", "action-repeat"), ("StickyAction:repeat_action_probability=1", "sticky-actions")],
)
def test_wrappers_of_gymnasium_that_repeat_actions_are_refused_where_there_are_masks(words: str, instead: str) -> None:
    single = Single.parse(*f"gymnasium:{words}".rsplit(":", 1))
    with pytest.raises(UsageError, match=rf"repeats actions, also those that the masks of Walk.*--wrap {instead}"):
        SerialEnvs(Walk, 2, "Walk", inexact="").inside(single)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sticky_action_sticks_only_where_it_is_allowed(kind: type[Strict]) -> None:
    """Repeated for ever, unless it is forbidden by then: what was chosen instead is what is repeated from there on."""
    env = StickyActions(SerialEnvs(kind, 3, inexact=""), StickyActionsConfig(probability=1.0))
    env.spec.action.seed(0)
    now, stuck = env.reset(0), 0
    taken = np.zeros((3, *shape_of(env.spec.action)))
    for _ in range(60):
        first, mask = now.is_first, np.array(now.obs["action_mask"])
        chosen = legal(env.spec.action, sample(env.spec.action, 3), mask)
        for row in range(3):
            allowed = (legal(env.spec.action, taken[[row]], mask[[row]]) == taken[[row]]).all()
            taken[row] = chosen[row] if first[row] or not allowed else taken[row]
            stuck += allowed and not first[row]
        now = env.step(chosen)
        np.testing.assert_array_equal(env.state_dict()["taken"], taken)
    assert 20 < stuck < 150


@pytest.mark.parametrize("kind", KINDS)
def test_sticky_actions_under_a_mask_go_on_to_the_same_bits(kind: type[Strict]) -> None:
    assert self_test(lambda: StickyActions(SerialEnvs(kind, 3, inexact=""), StickyActionsConfig(probability=0.7))) == ""


@pytest.mark.parametrize("kind", [*KINDS, Nested])
def test_a_repeated_action_is_taken_only_as_long_as_it_is_allowed(kind: type[Strict]) -> None:
    env = ActionRepeat(SerialEnvs(kind, 3, inexact=""), ActionRepeatConfig(times=4))
    env.spec.action.seed(0)
    now, rewards = env.reset(0), set[float]()
    for _ in range(60):
        now = env.step(legal(env.spec.action, sample(env.spec.action, 3), np.array(now.obs["action_mask"])))
        rewards.update(now.reward.tolist())
    assert rewards >= {1, 2, 3}


def test_moments_of_masked_observations_are_refused() -> None:
    env = Flatten(SerialEnvs(Strict, 2, inexact=""), Config())
    with pytest.raises(UsageError, match=r"hold an action_mask, which it does not support; leave it out: --net\.norm"):
        NormalizeObs(env, NormalizeObsConfig())


def test_a_mask_without_choices_forbids_none() -> None:
    assert not forbids(np.zeros(3), spaces.Discrete(3), 1)


class Forgetful(gymnasium.Env[Any, Any]):
    """Allows the first action alone, and says so until step `until` of an episode that never ends."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)

    def __init__(self, until: int) -> None:
        self.until, self.time = until, 0

    def told(self) -> Any:
        return {"action_mask": np.array([1, 0], np.int8)} if self.time < self.until else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return 0, self.told()

    def step(self, action: Any) -> Any:
        self.time += 1
        return 0, 1.0, False, False, self.told()


@pytest.mark.parametrize("others", [99, 2], ids=["one row", "all rows"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_mask_that_stops_in_the_middle_of_an_episode_is_said_of_a_vector(mode: AutoresetMode, others: int) -> None:
    made = [lambda: Forgetful(others), lambda: Forgetful(2)]
    env = Adapter(lambda: SyncVectorEnv(made, autoreset_mode=mode), "forgetful", inexact="a test")
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).obs["action_mask"].tolist() == [[1, 0]] * 2
    with pytest.raises(BadEnv, match=r"forgetful.*: info has no 'action_mask' in the middle of an episode") as raised:
        env.step(np.zeros(2, np.int64))
    if others > 2:
        assert str(raised.value).startswith("forgetful, environment 1, step 2 of its episode: ")


def test_masks_of_agents_begin_anew_with_the_worlds() -> None:
    env = Agents(lambda: Parallel(Partly()), 1, "partly", "")
    first = env.reset(0).obs["action_mask"].copy()
    env.step(np.array([0, 1]))
    assert np.array_equal(env.reset(0).obs["action_mask"], first)
