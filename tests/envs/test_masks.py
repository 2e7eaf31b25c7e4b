"""No self-test, wrapper or timing takes an action that the mask forbids."""

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
from rlplug_core.plugins.single_wrappers import SingleWrapper
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
    """The masked choice is nested in a dictionary."""

    action_space = spaces.Dict({"deep": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2)))})

    def check(self, action: Any) -> None:
        super().check(action["deep"][0] + 1)


SIZES = {"hunter": 3, "prey": 5}


class Hunt(ParallelEnv[str, Any, int]):
    """Two agents with different spaces, masks in their observations, and every other choice allowed."""

    metadata = {"name": "hunt", "is_parallelizable": True}
    render_mode = None
    possible_agents = list(SIZES)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        box = spaces.Box(-1, 1, (2 if agent == "prey" else 1,), np.float32)
        return spaces.Dict({"observation": box, "action_mask": spaces.MultiBinary(SIZES[agent])})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(SIZES[agent])

    def observe(self) -> dict[str, Any]:
        self.masks = {name: np.int8([(choice + self.time) % 2 == 0 for choice in range(SIZES[name])]) for name in SIZES}
        shapes = {name: self.observation_space(name)["observation"].shape for name in SIZES}
        return {
            name: {"observation": np.full(shapes[name], self.time / 20, np.float32), "action_mask": self.masks[name]}
            for name in SIZES
        }

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = list(SIZES)
        self.time = 0
        return self.observe(), {name: {} for name in SIZES}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        for name, choice in actions.items():
            if not self.masks[name][choice]:
                raise ValueError(f"{name} may not do {choice}")
        self.time += 1
        over = self.time == 20
        self.agents = [] if over else self.agents
        each = dict.fromkeys
        return self.observe(), each(SIZES, 1.0), each(SIZES, over), each(SIZES, False), {name: {} for name in SIZES}


def hunt(worlds: int = 1, inexact: str | None = "") -> Agents:
    return Agents(lambda: Parallel(Hunt()), worlds, "hunt", inexact)


class Partly(ParallelEnv[str, Any, int]):
    """Two agents with the same spaces; only the second has a mask in `info`, from the step `start` on."""

    metadata = {"name": "partly", "is_parallelizable": True}
    render_mode = None
    possible_agents = ["free", "bound"]

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(21)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def infos(self) -> dict[str, Any]:
        self.mask = np.int8([self.time % 2, 1 - self.time % 2, 0])
        return {"free": {}, "bound": {"action_mask": self.mask} if self.time >= self.start else {}}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = list(self.possible_agents)
        self.time = 0
        return dict.fromkeys(self.agents, 0), self.infos()

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        if not self.mask[actions["bound"]]:
            raise ValueError(f"bound may not do {actions['bound']}")
        self.time += 1
        over = self.time == 20
        all = self.possible_agents
        each = dict.fromkeys
        self.agents = [] if over else self.agents
        return each(all, self.time), each(all, 1.0), each(all, over), each(all, False), self.infos()


@pytest.mark.parametrize("make", [lambda: Parallel(Partly()), lambda: Turns(parallel_to_aec(Partly()))])
def test_agents_without_masks_may_do_everything(make: Callable[[], Game]) -> None:
    """The self-test and the loop take random allowed actions; a forbidden one would raise."""
    env = Agents(make, 2, "partly")
    assert env.spec.inexact == ""
    env.spec.action.seed(0)
    now = env.reset(0)
    for _ in range(150):
        mask = now.obs["action_mask"]
        assert mask[[0, 2]].all()  # the agent without a mask
        now = env.step(legal(env.spec.action, sample(env.spec.action, 4), mask))
    assert mask[1].sum() == mask[3].sum() == 1


def test_mask_after_the_first_reset_raises() -> None:
    env = Agents(lambda: Parallel(Partly(start=1)), 1, "partly", "")
    env.reset(0)
    with pytest.raises(BadEnv, match="partly: the info of bound has an 'action_mask', but after the first reset"):
        env.step(np.array([0, 1]))


def test_mask_missing_within_an_episode_raises() -> None:
    world = Partly()
    env = Agents(lambda: Parallel(world), 1, "partly", "")
    env.reset(0)
    world.start = 99
    with pytest.raises(BadEnv, match="partly: info has no 'action_mask' in the middle of an episode"):
        env.step(np.array([0, 1]))


def test_self_test_of_different_agents_takes_allowed_actions() -> None:
    assert hunt(inexact=None).spec.inexact == ""
    assert seconds_per_step(hunt()) > 0


def test_sticky_actions_of_different_agents_are_allowed() -> None:
    assert self_test(lambda: StickyActions(hunt(2), StickyActionsConfig(probability=0.7))) == ""


def test_frame_stack_keeps_the_mask_of_each_kind() -> None:
    env = FrameStack(hunt(), FrameStackConfig(frames=2))
    bare = hunt()
    stacked, plain = env.reset(0).obs, bare.reset(0).obs
    for kind in SIZES:
        assert stacked[kind].keys() == env.spec.obs[kind].spaces.keys()  # type: ignore[index]
        assert np.array_equal(stacked[kind]["action_mask"], plain[kind]["action_mask"])


def test_flatten_of_different_agents_raises() -> None:
    with pytest.raises(UsageError, match="flatten makes one vector, and the agents of hunt have different spaces"):
        Flatten(hunt(), Config())


@pytest.mark.parametrize("kind", KINDS)
def test_self_test_of_rows_takes_allowed_actions(kind: type[Strict]) -> None:
    assert SerialEnvs(kind, 2).spec.inexact == ""


@for_each("kind", KINDS)
@for_each("mode", AutoresetMode)
def test_self_test_of_vectors_takes_allowed_actions(kind: type[Strict], mode: AutoresetMode) -> None:
    assert Adapter(lambda: SyncVectorEnv([kind] * 3, autoreset_mode=mode)).spec.inexact == ""


def test_self_test_finds_hidden_state_despite_different_masks() -> None:
    """Each continuation uses its own masks; otherwise it would take forbidden actions."""
    assert "differs" in SerialEnvs(Hiding, 1).spec.inexact


def test_mask_of_the_wrong_length_raises() -> None:
    class Short(Strict):
        action_space = spaces.Discrete(4)

    with pytest.raises(UsageError, match="the 'action_mask' of Short-v0 has 3 entries, and its actions, Discrete"):
        SerialEnvs(Short, 1, "Short-v0")


@pytest.mark.parametrize("wrong", [-1e9, -np.inf, np.nan])
def test_additive_mask_in_the_observation_raises(wrong: float) -> None:
    """Any number except 0 allows, so a mask of logits would mean the opposite."""

    class Added(Strict):
        observation_space = spaces.Dict(obs=spaces.Box(-1, 1, (1,)), action_mask=spaces.Box(-np.inf, np.inf, (3,)))

        def observe(self) -> Any:
            mask = [0, wrong if self.time == 2 else 0, 0]
            return {"obs": np.zeros(1, np.float32), "action_mask": np.array(mask, np.float32)}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.time = 0
            return self.observe(), {}

        def step(self, action: Any) -> Any:
            self.time += 1
            return self.observe(), 0.0, False, False, {}

    message = (
        f"step 2 of its episode: the observation 'action_mask' holds {wrong:g}; give 1 for each choice that is allow"
    )
    with pytest.raises(BadEnv, match=message.replace("+", ".")):
        SerialEnvs(Added, 2, "Added-v0")


@pytest.mark.parametrize("length", [1, 2])
def test_mask_that_changes_its_length_raises(length: int) -> None:
    """Also one with a single entry, which numpy would broadcast to all choices."""

    class Shrinking(Walk):
        def step(self, action: Any) -> Any:
            *results, info = super().step(action)
            return *results, {"action_mask": info["action_mask"][: length if self.time == 2 else None]}

    message = rf"Walk: info\['action_mask'\] has shape \({length},\), and in the first reset it had \(3,\)"
    serial = SerialEnvs(Shrinking, 1, "Walk", inexact="")
    vector = Adapter(lambda: SyncVectorEnv([Shrinking], autoreset_mode=AutoresetMode.NEXT_STEP), "Walk", inexact="")
    for envs in (serial, vector):
        envs.reset(0)
        envs.step(np.zeros(1, np.int64))
        with pytest.raises(BadEnv, match=message):
            envs.step(np.zeros(1, np.int64))


class Walk(gymnasium.Env[Any, Any]):
    """Its mask allows every choice."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def observe(self) -> tuple[Any, dict[str, Any]]:
        return np.float32([self.time]), {"action_mask": np.ones(3, np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.observe()

    def step(self, action: Any) -> Any:
        self.time += 1
        obs, info = self.observe()
        return obs, 1.0, False, False, info


@pytest.mark.parametrize(
    ("words", "instead"),
    [("MaxAndSkipObservation:skip=4", "action-repeat"), ("StickyAction:repeat_action_probability=1", "sticky-actions")],
)
def test_gymnasium_wrappers_that_repeat_actions_raise_with_masks(words: str, instead: str) -> None:
    single = SingleWrapper.parse(*f"gymnasium:{words}".rsplit(":", 1))
    with pytest.raises(UsageError, match=rf"repeats actions, also those that the masks of Walk.*--wrap {instead}"):
        SerialEnvs(Walk, 2, "Walk", inexact="").inside(single)


@pytest.mark.parametrize("kind", KINDS)
def test_sticky_action_repeats_only_allowed_actions(kind: type[Strict]) -> None:
    """With probability 1, an action repeats until it is forbidden; then the next chosen action repeats."""
    env = StickyActions(SerialEnvs(kind, 3, inexact=""), StickyActionsConfig(probability=1.0))
    env.spec.action.seed(0)
    now = env.reset(0)
    stuck = 0
    taken = np.zeros((3, *shape_of(env.spec.action)))
    for _ in range(60):
        first = now.is_first
        mask = np.array(now.obs["action_mask"])
        chosen = legal(env.spec.action, sample(env.spec.action, 3), mask)
        for row in range(3):
            allowed = (legal(env.spec.action, taken[[row]], mask[[row]]) == taken[[row]]).all()
            taken[row] = chosen[row] if first[row] or not allowed else taken[row]
            stuck += allowed and not first[row]
        now = env.step(chosen)
        np.testing.assert_array_equal(env.state_dict()["taken"], taken)
    assert 20 < stuck < 150


@pytest.mark.parametrize("kind", KINDS)
def test_sticky_actions_with_masks_resume_exactly(kind: type[Strict]) -> None:
    assert self_test(lambda: StickyActions(SerialEnvs(kind, 3, inexact=""), StickyActionsConfig(probability=0.7))) == ""


@pytest.mark.parametrize("kind", [*KINDS, Nested])
def test_action_repeat_stops_when_the_action_is_forbidden(kind: type[Strict]) -> None:
    env = ActionRepeat(SerialEnvs(kind, 3, inexact=""), ActionRepeatConfig(times=4))
    env.spec.action.seed(0)
    now = env.reset(0)
    rewards = set[float]()
    for _ in range(60):
        now = env.step(legal(env.spec.action, sample(env.spec.action, 3), np.array(now.obs["action_mask"])))
        rewards.update(now.reward.tolist())
    assert rewards >= {1, 2, 3}


def test_normalizing_masked_observations_raises() -> None:
    env = Flatten(SerialEnvs(Strict, 2, inexact=""), Config())
    with pytest.raises(UsageError, match=r"hold an action_mask, which it does not support; leave it out: --net\.norm"):
        NormalizeObs(env, NormalizeObsConfig())


def test_mask_of_zeros_forbids_nothing() -> None:
    assert not forbids(np.zeros(3), spaces.Discrete(3), 1)


class Forgetful(gymnasium.Env[Any, Any]):
    """Its mask allows only the first action and is missing from step `until` on; its episode never ends."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)

    def __init__(self, until: int) -> None:
        self.until = until
        self.time = 0

    def infos(self) -> Any:
        return {"action_mask": np.array([1, 0], np.int8)} if self.time < self.until else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return 0, self.infos()

    def step(self, action: Any) -> Any:
        self.time += 1
        return 0, 1.0, False, False, self.infos()


@pytest.mark.parametrize("others", [99, 2], ids=["one row", "all rows"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_mask_missing_within_an_episode_of_a_vector_raises(mode: AutoresetMode, others: int) -> None:
    makes = [lambda: Forgetful(others), lambda: Forgetful(2)]
    env = Adapter(lambda: SyncVectorEnv(makes, autoreset_mode=mode), "forgetful", inexact="a test")
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).obs["action_mask"].tolist() == [[1, 0]] * 2
    with pytest.raises(BadEnv, match=r"forgetful.*: info has no 'action_mask' in the middle of an episode") as raised:
        env.step(np.zeros(2, np.int64))
    if others > 2:
        assert str(raised.value).startswith("forgetful, environment 1, step 2 of its episode: ")


def test_reset_restores_the_masks_of_agents() -> None:
    env = Agents(lambda: Parallel(Partly()), 1, "partly", "")
    first = env.reset(0).obs["action_mask"].copy()
    env.step(np.array([0, 1]))
    assert np.array_equal(env.reset(0).obs["action_mask"], first)
