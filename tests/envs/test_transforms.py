"""Each wrapper equals a naive one per row: across ends of episodes, in all autoreset modes and after resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.errors import BadConfig, BadEnv, UsageError
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.plugins.transform import Transform, freeze
from rlplug_core.protocols import Env, Wrapper
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Timestep
from rlplug_envs.adapter import Adapter
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.wrappers.actions import ActionRepeat, ActionRepeatConfig, StickyActions
from rlplug_envs.wrappers.flatten import Flatten
from rlplug_envs.wrappers.frames import FrameStack
from rlplug_envs.wrappers.lives import EpisodicLife
from rlplug_envs.wrappers.observations import NormalizeObs, NormalizeObsConfig
from rlplug_envs.wrappers.rewards import ClipReward, ScaleReward
from rlplug_envs.wrappers.time import TimeFeature, TimeLimit
from tests.core.fakes import ENVS, TINY
from tests.envs.walks import Rich, Walk, environments, play_rows, reference
from tests.tables import for_each

FORMS = list(environments())
#: Wrappers by the name that a user types; a type checker compares the classes with the protocol here.
WRAPPERS: dict[str, Wrapper] = {
    "clip-reward": ClipReward, "flatten": Flatten, "frame-stack": FrameStack, "normalize-obs": NormalizeObs,
    "scale-reward": ScaleReward, "sticky-actions": StickyActions, "time-feature": TimeFeature,
    "time-limit": TimeLimit,
}  # fmt: skip
FLAGS = ("terminated", "truncated", "is_first", "valid")


def wrap(env: Env, *words: str) -> Env:
    """`env` inside wrappers that are written like on the command line."""
    names = [word.partition(":") for word in words]
    targets = [f"{_target(name)}{colon}{options}" for name, colon, options in names]
    return wrap_env(env, map(WrapperSpec.parse, targets))


def _target(name: str) -> str:
    code: Any = WRAPPERS[name]
    return f"{code.__module__}:{code.__qualname__}"


def copy_timestep(now: Timestep) -> Timestep:
    """A copy that later calls do not change; `final_obs` stays the same object as `obs` if it was."""
    obs = _copy(now.obs)
    final = obs if now.final_obs is now.obs else _copy(now.final_obs)
    reward, *flags = (getattr(now, name).copy() for name in ("reward", *FLAGS))
    return Timestep(obs, final, reward, *flags, list(now.episodes), now.ended, now.count)


def _copy(tree: Any) -> Any:
    return {name: _copy(inner) for name, inner in tree.items()} if isinstance(tree, dict) else tree.copy()


def row_of(tree: Any, row: int) -> Any:
    return {name: row_of(inner, row) for name, inner in tree.items()} if isinstance(tree, dict) else tree[row]


def play(env: Env, seed: int, actions: Array) -> Iterator[Timestep]:
    """The timesteps of actions [T, N]."""
    yield copy_timestep(env.reset(seed))
    for action in actions:
        yield copy_timestep(env.step(action))
    env.close()


def check(bare: list[Timestep], seen: list[Timestep], row: int, see: Callable[[list[Any]], Any]) -> None:
    """One row of `seen` is what `see` makes of the unwrapped observations since the start of the episode."""
    history: list[Any] = []
    for number, (below, above) in enumerate(zip(bare, seen, strict=True)):
        if number and below.valid[row]:
            assert_equal(row_of(above.final_obs, row), see([*history, row_of(below.final_obs, row)]))
        history = [*([] if below.is_first[row] else history), row_of(below.obs, row)]
        assert_equal(row_of(above.obs, row), see(history))
        assert (above.final_obs is above.obs) == (below.final_obs is below.obs)


def assert_equal(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_equal(actual[name], expected[name])
    else:
        np.testing.assert_array_equal(actual, expected)


def assert_same(actual: Timestep, expected: Timestep, *excluded: str) -> None:
    """Two timesteps are equal except for the excluded fields."""
    for name in ("obs", "final_obs", "reward", *FLAGS):
        if name not in excluded:
            assert_equal(getattr(actual, name), getattr(expected, name))
    assert (actual.episodes, actual.ended, actual.count) == (expected.episodes, expected.ended, expected.count)


def actions_of(seed: int, steps: int = 40, num_envs: int = 2) -> Array:
    return np.random.default_rng(seed).integers(0, 3, (steps, num_envs))


class Image(Walk):
    """A walk with an image [C, H, W] as observation."""

    shape: ClassVar[tuple[int, ...]] = (2, 3, 4)
    observation_space = spaces.Box(0, 255, shape, np.uint8)

    def see(self) -> Any:
        return (np.arange(24, dtype=np.uint8) + 24 * self.age).reshape(self.shape)


class ChannelsLast(Image):
    shape = (4, 3, 2)
    observation_space = spaces.Box(0, 255, shape, np.uint8)


class ManyLast(Image):
    """An image [H, W, C] with more channels than pixels per side."""

    shape = (2, 2, 6)
    observation_space = spaces.Box(0, 255, shape, np.uint8)


class Gray(Image):
    shape = (4, 6)
    observation_space = spaces.Box(0, 255, shape, np.uint8)


class Number(Image):
    shape = ()
    observation_space = spaces.Box(0, 99, (), np.float32)

    def see(self) -> Any:
        return np.float32(self.age)


class Vectors(Walk):
    """Two vectors in a dictionary, and an action mask."""

    observation_space = spaces.Dict({"a": Walk.observation_space, "b": spaces.Box(0, 9, (2,), np.float32)})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], self.mask_info()

    def see(self) -> Any:
        return {"a": super().see(), "b": np.full(2, self.age, np.float32)}

    def mask_info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, self.age % 2, 1], np.int8)}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], self.mask_info()


#: The axis along which frames are joined; None stacks them along a new first axis.
JOINED: dict[type[Walk], int | None] = {Walk: 0, Image: 0, ChannelsLast: 2, ManyLast: 2, Gray: None, Number: None}


def stack(history: list[Any], frames: int, axis: int | None) -> Any:
    """The last frames, padded with the first one; per entry of a dictionary, without the mask."""
    if isinstance(history[-1], dict):
        parts = {name: [obs[name] for obs in history] for name in history[-1]}
        return {n: part[-1] if n == "action_mask" else stack(part, frames, axis) for n, part in parts.items()}
    last = [*[history[0]] * frames, *history][-frames:] if len(history) < frames else history[-frames:]
    return np.stack(last) if axis is None else np.concatenate(last, axis)


@for_each("form", FORMS)
@for_each("kind", [*JOINED, Vectors])
@for_each("frames", [1, 3])
def test_frame_stack(form: str, kind: type[Walk], frames: int) -> None:
    env = wrap(environments(kind)[form], f"frame-stack:frames={frames}")
    actions = actions_of(frames)
    seen = list(play(env, 5, actions))
    bare = list(play(environments(kind)[form], 5, actions))
    for row in range(2):
        check(bare, seen, row, lambda history: stack(history, frames, JOINED.get(kind, 0)))
    for now, below in zip(seen, bare, strict=True):
        assert_same(now, below, "obs", "final_obs")
        assert all(env.spec.obs.contains(row_of(now.obs, row)) for row in range(2))


@for_each("form", FORMS)
@for_each("kind", [*JOINED, Rich, Vectors])
def test_flatten(form: str, kind: type[Walk]) -> None:
    below = environments(kind)[form].spec.obs
    masked = isinstance(below, spaces.Dict) and "action_mask" in below.spaces
    inner = spaces.Dict({n: s for n, s in below.items() if n != "action_mask"}) if masked else below

    def see(history: list[Any]) -> Any:
        if not masked:
            return spaces.flatten(inner, history[-1])
        body = {name: part for name, part in history[-1].items() if name != "action_mask"}
        return {"obs": spaces.flatten(inner, body), "action_mask": history[-1]["action_mask"]}

    env = wrap(environments(kind)[form], "flatten")
    actions = actions_of(1)
    seen = list(play(env, 5, actions))
    bare = list(play(environments(kind)[form], 5, actions))
    for row in range(2):
        check(bare, seen, row, see)
    for now, before in zip(seen, bare, strict=True):
        assert_same(now, before, "obs", "final_obs")
        assert all(env.spec.obs.contains(row_of(now.obs, row)) for row in range(2))


class Numbers(Walk):
    """Numbers that do not start at 0."""

    observation_space = spaces.Tuple((spaces.Discrete(20, start=-3), spaces.MultiDiscrete([9, 3], start=[0, 5])))

    def see(self) -> Any:
        return (np.int64(min(self.age, 16) - 3), np.array([min(self.age, 8), 5 + self.age % 3]))


def test_flatten_makes_numbers_one_hot() -> None:
    env = wrap(SerialEnvs(Numbers, 2, inexact=""), "flatten")
    env.reset(0)
    now = env.step(np.ones(2, np.int64))
    assert now.final_obs[0].nonzero()[0].tolist() == [1, 20 + 1, 20 + 9 + 1]


@pytest.mark.parametrize("form", FORMS)
def test_time_feature(form: str) -> None:
    env = wrap(environments()[form], "time-feature:steps=5")
    actions = actions_of(1)
    seen = list(play(env, 5, actions))
    bare = list(play(environments()[form], 5, actions))
    for row in range(2):
        check(bare, seen, row, lambda h: np.append(h[-1], np.float32(min(1, (len(h) - 1) * np.float32(0.2)))))
    for now, below in zip(seen, bare, strict=True):
        assert_same(now, below, "obs", "final_obs")


def test_time_feature_keeps_the_mask() -> None:
    env = wrap(SerialEnvs(Vectors, 2, inexact=""), "flatten", "time-feature:steps=5")
    env.reset(0)
    now = env.step(np.ones(2, np.int64))
    assert now.final_obs["obs"][:, -1].tolist() == pytest.approx([0.2, 0.2])
    assert now.final_obs["action_mask"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert env.spec.obs.contains(row_of(now.obs, 0))


@pytest.mark.parametrize("name", ["clip-reward", "scale-reward"])
def test_evaluation_does_not_change_rewards(name: str) -> None:
    """The return of an episode that an evaluation cuts is the sum of its rewards."""
    env = SerialEnvs(Walk, 1, inexact="")
    assert Plan.make(TINY, f"{ENVS}:Chain", {"wrap": (name,)}).for_evaluation(env) is env


@for_each("form", FORMS)
@for_each(
    "words, pay",
    [("clip-reward:low=-0.5,high=2", lambda r: min(max(r, -0.5), 2)), ("scale-reward:factor=0.5", lambda r: r * 0.5)],
)
def test_rewards(form: str, words: str, pay: Callable[[float], float]) -> None:
    """Rewards change; the returns of episodes do not."""
    actions = actions_of(1)
    seen, bare = (list(play(env, 5, actions)) for env in (wrap(environments()[form], words), environments()[form]))
    for now, below in zip(seen, bare, strict=True):
        assert_same(now, below, "reward")
        assert now.reward.dtype == np.float32
        valid = below.valid
        assert now.reward[valid].tolist() == [np.float32(pay(reward)) for reward in below.reward[valid].tolist()]
    assert any(now.episodes for now in seen)


@pytest.mark.parametrize("kind", [Walk, Rich])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), num_envs=st.integers(1, 4), limit=st.integers(1, 9), steps=st.integers(1, 25))
def test_time_limit(kind: type[Walk], seed: int, num_envs: int, limit: int, steps: int) -> None:
    """Most episodes of the walk would end between steps 2 and 8."""
    actions = actions_of(seed, num_envs, steps)
    expected = reference(kind, seed, actions, limit)
    for form, env in environments(kind, num_envs).items():
        assert play_rows(wrap(env, f"time-limit:steps={limit}"), seed, actions) == expected, form


def test_time_limit_in_the_native_vector() -> None:
    """It ignores masked resets, so it gets the limit itself."""
    env = wrap(Gymnasium().make("CartPole-v1", 20), "time-limit:steps=7")
    assert type(env.env).__name__ == "Native"  # type: ignore[attr-defined]
    episodes = [episode for now in play(env, 0, np.zeros((60, 20), np.int64)) for episode in now.episodes]
    alternating = np.arange(60)[:, None] % 2 + np.zeros((60, 20), np.int64)
    episodes += [episode for now in play(env, 0, alternating) for episode in now.episodes]
    assert {episode.length for episode in episodes} == {7}


def test_smaller_limit_holds() -> None:
    for env in environments().values():
        limited = wrap(env, "time-limit:steps=3", "time-limit:steps=9")
        lengths = {episode.length for now in play(limited, 0, actions_of(0)) for episode in now.episodes}
        assert max(lengths) == 3


def test_limit_of_an_environment_without_masked_resets_raises() -> None:
    with pytest.raises(UsageError, match="Chain cannot cut its episodes"):
        wrap(Chain(2), "time-limit:steps=3")
    env = wrap(Adapter(lambda: CartPoleVectorEnv(4), "Native-v0", inexact=""), "time-limit:steps=20")
    # One pole stays up to its limit, while the others have started new episodes.
    action = np.ones((30, 4), np.int64)
    action[:, 0] = np.arange(30) % 2
    with pytest.raises(BadEnv, match=r"Native-v0: reset\(options=\{'reset_mask'"):
        list(play(env, 0, action))


class Recording(Transform):
    """Records actions."""

    def __init__(self, env: Env, taken: list[Array]) -> None:
        super().__init__(env)
        self.taken = taken

    def step(self, action: Array) -> Timestep:
        self.taken.append(action.copy())
        return super().step(action)


@pytest.mark.parametrize("form", FORMS)
def test_sticky_actions(form: str) -> None:
    """With probability 0.4 the last action repeats, but not across the start of an episode."""
    taken: list[Array] = []
    env = wrap(Recording(environments(num_envs=2)[form], taken), "sticky-actions:probability=0.4")
    chosen = actions_of(3, 800)
    seen = list(play(env, 1, chosen))
    repeated = possible = 0
    for row in range(2):
        before = -1
        for number, (choice, done) in enumerate(zip(chosen[:, row], np.array(taken)[:, row], strict=True)):
            if seen[number].is_first[row]:
                assert done == choice
            elif choice != before:
                possible += 1
                repeated += done == before
                assert done in (choice, before)
            before = done
    assert repeated / possible == pytest.approx(0.4, abs=0.06)


def test_sticky_actions_work_with_box_actions() -> None:
    """With probability 1, every step takes the first action."""
    env = wrap(Gymnasium().make("Pendulum-v1", 3), "sticky-actions:probability=1")
    plain = Gymnasium().make("Pendulum-v1", 3)
    env.reset(0)
    plain.reset(0)
    for action in np.linspace(-1, 1, 20, dtype=np.float32):
        now = env.step(np.full((3, 1), action))
        expected = plain.step(np.full((3, 1), -1, np.float32))
        assert (now.obs == expected.obs).all()
        assert_same(now, expected)


ALL = ("time-limit:steps=6", "sticky-actions", "frame-stack:frames=3", "time-feature:steps=6", "clip-reward",
       "scale-reward")  # fmt: skip


@for_each("form", FORMS)
@for_each("words", [*((word,) for word in WRAPPERS), ALL])
def test_wrappers_resume_exactly(form: str, words: tuple[str, ...]) -> None:
    assert self_test(lambda: wrap(environments()[form], *words), 64) == ""


@pytest.mark.parametrize("kind", [Vectors, ChannelsLast], ids=lambda kind: kind.__name__)
def test_frame_stack_of_other_observations_resumes_exactly(kind: type[Walk]) -> None:
    assert self_test(lambda: wrap(SerialEnvs(kind, 2, inexact=""), "frame-stack:frames=3"), 64) == ""


def test_self_test_detects_a_missing_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the two tests above could not fail."""
    monkeypatch.setattr(FrameStack, "load_state_dict", Transform.load_state_dict)
    assert "differs" in self_test(lambda: wrap(SerialEnvs(Walk, 2, inexact=""), "frame-stack:frames=3"), 64)


@for_each("words", WRAPPERS)
def test_wrappers_keep_the_reason_of_inexact(words: str) -> None:
    env = wrap(SerialEnvs(Walk, 2, inexact="for a reason"), words)
    assert env.spec.inexact == "for a reason"
    assert env.state_dict()["inexact"] == "for a reason"


@for_each("form", FORMS)
@for_each("words", WRAPPERS)
def test_arrays_stay_valid_until_the_second_next_call(form: str, words: str) -> None:
    env = wrap(environments()[form], words)
    now = env.reset(0)
    for _ in range(40):
        copies = [(getattr(now, name), getattr(now, name).copy()) for name in ("obs", "final_obs", "reward", *FLAGS)]
        now = env.step(np.ones(2, np.int64))
        for array, copy in copies:
            np.testing.assert_array_equal(array, copy)


@for_each("form", FORMS)
@for_each(
    "words", [("frame-stack:frames=3",), ("flatten",), ("time-feature:steps=4",), ("flatten", "frame-stack:frames=2")]
)
def test_observe_equals_the_observations_of_steps(form: str, words: tuple[str, ...]) -> None:
    """A loaded policy calls `observe` with the unwrapped observations of one row."""
    kind = Vectors if words[0] != "time-feature:steps=4" else Walk
    make = lambda rows: environments(kind, rows)[form]  # noqa: E731
    seen, bare = (list(play(env, 2, actions_of(0, num_envs=1))) for env in (wrap(make(1), *words), make(1)))
    fresh: Any = wrap(make(1), *words)
    assert fresh.source == make(1).spec
    for above, below in zip(seen, bare, strict=True):
        assert_equal(fresh.observe(below.obs, below.is_first), above.obs)


def test_observe_of_a_batch_raises_if_there_is_history() -> None:
    for words in ("frame-stack", "time-feature"):
        env: Any = wrap(SerialEnvs(Walk, 1, inexact=""), words)
        with pytest.raises(UsageError, match="one observation at a time"):
            env.observe(np.zeros((4, 3), np.float32), np.ones(1, np.bool_))
    flat: Any = wrap(SerialEnvs(Image, 1, inexact=""), "flatten")
    assert flat.observe(np.zeros((4, 2, 3, 4), np.uint8), np.ones(1, np.bool_)).shape == (4, 24)


@pytest.mark.parametrize("form", FORMS)
def test_observations_are_normalized_by_the_moments_so_far(form: str) -> None:
    """Compared with numpy. Last observations are scaled by the moments of their step, and do not change them."""
    make = lambda: environments(Walk, 3)[form]  # noqa: E731
    env = NormalizeObs(make(), NormalizeObsConfig(clip_obs=1.5))
    bare = list(play(make(), 2, actions_of(0, num_envs=3)))
    seen = []
    for below, above in zip(bare, play(env, 2, actions_of(0, num_envs=3)), strict=True):
        seen.append(below.obs)
        every = np.concatenate(seen).astype(np.float64)
        scale = lambda obs, every=every: np.clip(  # noqa: E731
            (obs - every.mean(0)) / np.sqrt(every.var(0) + 1e-8), -1.5, 1.5
        )
        np.testing.assert_allclose(above.obs, scale(below.obs), atol=2e-4)
        np.testing.assert_allclose(above.final_obs, scale(below.final_obs), atol=2e-4)
        assert env.spec.obs.contains(above.obs[0])


def test_evaluation_uses_the_moments_of_training_unchanged() -> None:
    trained, fresh = (NormalizeObs(SerialEnvs(Walk, 2, inexact=""), NormalizeObsConfig()) for _ in range(2))
    list(play(trained, 1, actions_of(0)))
    fresh.freeze(trained.learned())
    bare = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    before = fresh.observe(bare, np.zeros(2, np.bool_))
    np.testing.assert_array_equal(before, trained.observe(bare, np.zeros(2, np.bool_)))
    list(play(fresh, 2, actions_of(1)))
    np.testing.assert_array_equal(before, fresh.observe(bare, np.zeros(2, np.bool_)))


def test_action_repeat_stops_at_the_end_of_an_episode() -> None:
    """Compared with an environment that gets each action three times."""
    env = ActionRepeat(SerialEnvs(Walk, 1, inexact=""), ActionRepeatConfig(3))
    bare = SerialEnvs(Walk, 1, inexact="")
    env.reset(4)
    bare.reset(4)
    ends = 0
    for action in actions_of(0, num_envs=1):
        now = env.step(action)
        total = np.float32(0)
        for _ in range(3):
            then = bare.step(action)
            total += then.reward[0]
            if then.ended:
                break
        ends += then.ended
        assert now.reward[0] == pytest.approx(total, rel=1e-6)
        assert (now.terminated[0], now.truncated[0]) == (then.terminated[0], then.truncated[0])
        np.testing.assert_array_equal(now.obs, then.obs)
        assert [episode.total for episode in now.episodes] == pytest.approx(
            [episode.total for episode in then.episodes]
        )
    assert ends > 2


def test_action_repeat_above_other_wrappers_raises() -> None:
    with pytest.raises(UsageError, match=r"goes around each environment of .* put it first"):
        ActionRepeat(wrap(SerialEnvs(Walk, 1, inexact=""), "clip-reward"), ActionRepeatConfig())


def test_wrappers_translate_actions() -> None:
    for env in (Gymnasium().make("Pendulum-v1", 2), wrap(Gymnasium().make("Pendulum-v1", 2), "flatten", "clip-reward")):
        assert complete(env).translate(np.array([[0.5], [-1]], np.float32)).tolist() == [[1], [-2]]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ("clip-reward:low=2", BadConfig, "low is 2, which is not below high, 1"),
        ("time-feature", UsageError, "not vectors of floats; put flatten before it"),
        ("normalize-obs", UsageError, "hold an action_mask, which it does not support"),
        ("frame-stack", UsageError, "hold a Discrete; put flatten before it"),
    ],
)
def test_unsuitable_options_raise(words: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrap(SerialEnvs(Rich, 1, inexact=""), words)


class Lives(gymnasium.Env[Any, Any]):
    """Each fourth step costs one of three lives; a reset gives no lives; the last step truncates."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.age += 1
        return np.zeros(1, np.float32), 1.0, False, self.age >= self.length, {"lives": 3 - self.age // 4}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_reset_may_give_no_lives(mode: AutoresetMode) -> None:
    """Gymnasium's vector gives None for rows that were reset if other rows give a number."""
    makes = [lambda: Lives(8), lambda: Lives(6)]
    env = EpisodicLife(Adapter(lambda: SyncVectorEnv(makes, autoreset_mode=mode), "Lives", inexact="a test"))
    env.reset(0)
    walk = [env.step(np.zeros(2, np.int64)) for _ in range(30)]
    assert not any((now.terminated & now.truncated).any() for now in walk)
    assert {(episode.row, episode.length) for now in walk for episode in now.episodes} == {(0, 8), (1, 6)}
    assert any(now.terminated.any() for now in walk)


def test_steps_without_lives_raise() -> None:
    env = EpisodicLife(Adapter(lambda: SyncVectorEnv([Walk] * 2), "Walk", inexact="a test"))
    env.reset(0)
    with pytest.raises(UsageError, match="Walk has no info"):
        env.step(np.zeros(env.spec.num_envs, np.int64))


def test_rewards_of_a_data_set_are_wrapped() -> None:
    env = wrap_env(Chain(2), map(WrapperSpec.parse, ("clip-reward:high=3", "scale-reward:factor=0.5")))
    recorded = np.array([-2.0, 1.0, 7.0], np.float32)
    assert complete(env).reward(recorded).tolist() == [-0.5, 0.5, 1.5]
    assert recorded.tolist() == [-2, 1, 7]


def test_moments_of_another_shape_raise() -> None:
    """They are not broadcast."""
    env = wrap(SerialEnvs(lambda: gymnasium.make("CartPole-v1"), 1, "CartPole-v1"), "normalize-obs")
    learned = complete(env).learned()
    other = {**learned, "mean": np.zeros(7)}
    with pytest.raises(UsageError, match=r"does not fit those around CartPole-v1: an array of shape \(7,\) was saved"):
        freeze(env, other)
    env.reset(0)
    state = env.state_dict()
    with pytest.raises(ValueError, match=r"shape \(1, 7\) was saved, and \(1, 4\)"):
        env.load_state_dict({**state, "held": np.zeros((1, 7))})
