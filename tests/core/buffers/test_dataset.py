"""Data sets: files that are read or refused, and batches of recorded transitions."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import gymnasium.spaces as spaces
import minari
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from minari.data_collector import EpisodeBuffer

from rlplug_core.buffers.dataset import FIELDS, Dataset
from rlplug_core.buffers.dataset_files import read
from rlplug_core.buffers.make import PriorityOptions, replay_buffer
from rlplug_core.buffers.recorded import RecordedReplay, WarmReplay
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.clock import Clock
from rlplug_core.config.files import replace
from rlplug_core.errors import BadFile, UsageError
from rlplug_core.loop.learner_data import fit_dataset
from rlplug_core.plugins.transform import Transform
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Result, Spec, Step

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)
OWN = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]), dtype=np.float32)
CANONICAL = spaces.Box(-1, 1, (2,), np.float32)
SPEC = Spec(BOX, CANONICAL, 1, "Test")


def arrays(lengths: tuple[int, ...] = (3, 4), terminated: tuple[bool, ...] = (True, False)) -> dict[str, Any]:
    """Make episodes with observations (e, t) and rewards 10 e + t for step t of episode e."""
    obs = np.array([(e, t) for e, length in enumerate(lengths) for t in range(length)], np.float32)
    last = np.cumsum(lengths) - 1
    ends = np.zeros(len(obs), bool)
    ends[last] = terminated
    cut = np.zeros(len(obs), bool)
    cut[last] = ~ends[last]
    action = np.stack([np.linspace(-2, 2, len(obs)), np.linspace(0, 10, len(obs))], 1).astype(np.float32)
    return dict(
        zip(FIELDS, (obs, action, 10 * obs[:, 0] + obs[:, 1], obs + np.float32([0, 1]), ends, cut), strict=True)
    )


def save(path: Path, **changed: Any) -> str:
    np.savez_compressed(path, **{name: value for name, value in {**arrays(), **changed}.items() if value is not None})
    return str(path)


@pytest.mark.parametrize("canonical", [CANONICAL, spaces.Box(-1, 1, (2,), np.float64)])
def test_fit_scales_actions_to_the_space_of_agents(tmp_path: Path, canonical: spaces.Box[Any]) -> None:
    fitted = read(save(tmp_path / "a.npz")).fit(Spec(BOX, canonical, 1, "Test"), OWN)
    np.testing.assert_allclose(fitted.action[:, 0], np.linspace(-1, 1, 7), atol=1e-6)
    np.testing.assert_allclose(fitted.action[:, 1], np.linspace(-1, 1, 7), atol=1e-6)
    assert fitted.action.dtype == np.float32


def test_fit_clips_actions_slightly_out_of_bounds() -> None:
    actions = arrays()["actions"]
    actions[0] = (-2.001, -0.004)
    actions[-1] = (2.001, 10.004)
    fitted = Dataset("x", {**arrays(), "actions": actions}).fit(SPEC, OWN)
    assert (fitted.action.min(), fitted.action.max()) == (-1, 1)


def test_fit_makes_discrete_actions_start_at_zero() -> None:
    data = Dataset("x", {**arrays(), "actions": np.array([5, 6, 7, 5, 6, 7, 5])})
    spec = Spec(BOX, spaces.Discrete(3), 1, "Test")
    assert data.fit(spec, spaces.Discrete(3, start=5)).action.tolist() == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(UsageError, match=r"its actions are outside Discrete\(2, start=5\)"):
        data.fit(spec, spaces.Discrete(2, start=5))
    pairs = np.array([[5, 0], [6, 1]])[[0, 1, 0, 1, 0, 1, 0]]
    spec = Spec(BOX, spaces.MultiDiscrete([2, 2]), 1, "Test")
    fitted = Dataset("x", {**arrays(), "actions": pairs}).fit(spec, spaces.MultiDiscrete([2, 2], start=[5, 0]))
    assert np.array_equal(fitted.action, pairs - [5, 0])


def test_fit_refuses_invalid_actions_and_states() -> None:
    actions = np.array([0, 1, 2, 0.7, 1, 2, 0])
    with pytest.raises(UsageError, match=r"its actions are outside Discrete\(3\)"):
        Dataset("x", {**arrays(), "actions": actions}).fit(Spec(BOX, spaces.Discrete(3), 1, "T"), spaces.Discrete(3))
    spec = Spec(spaces.Discrete(5), CANONICAL, 1, "Test")
    for state, message in (
        (7, "'observations' of transition 3 is 7, and Discrete\\(5\\) has 0 to 4"),
        (1.5, "not whole"),
    ):
        obs = np.array([0, 1, 2, state, 4, 0, 1])
        with pytest.raises(UsageError, match=message):
            Dataset("x", {**arrays(), "observations": obs, "next_observations": np.ones(7)}).fit(spec, OWN)


@pytest.mark.parametrize("action", [[-5.0, 0.0], [0.0, 9.0]])
def test_fit_refuses_actions_beyond_a_single_bound(action: list[float]) -> None:
    space = spaces.Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 5], np.float32))
    data = arrays() | {"actions": np.array([[7.0, -7.0]] * 7)}
    assert Dataset("x", data).fit(SPEC, space).action.tolist() == [[7, -7]] * 7
    with pytest.raises(UsageError, match="its actions are outside Box"):
        Dataset("x", data | {"actions": np.array([action] * 7)}).fit(SPEC, space)


def test_fit_refuses_floats_that_are_not_pixels() -> None:
    spec = Spec(spaces.Box(0, 255, (2,), np.uint8), CANONICAL, 1, "Test")
    numbers = np.arange(14, dtype=np.float32).reshape(7, 2)
    pixels = arrays() | {"observations": numbers, "next_observations": numbers}
    assert Dataset("x", pixels).fit(spec, OWN).obs.dtype == np.uint8
    with pytest.raises(UsageError, match=r"'observations' of transition 0 holds 0\.\d+, and Box"):
        Dataset("x", pixels | {"observations": numbers / 255}).fit(spec, OWN)


def test_fit_refuses_terminations_with_an_extra_dimension() -> None:
    ends = arrays()["terminations"][:, None]
    with pytest.raises(UsageError, match=r"'terminations' has shape \[1\] in each step, not \[\];"):
        Dataset("x", {**arrays(), "terminations": ends}).fit(SPEC, OWN)


def test_names_of_observations_can_contain_a_slash() -> None:
    space = spaces.Dict({"arm/pos": BOX, "arm": spaces.Dict({"vel": BOX})})
    obs = arrays()["observations"]
    tree = {"arm/pos": obs, "arm": {"vel": 2 * obs}}
    fitted = Dataset("x", {**arrays(), "observations": tree, "next_observations": tree}).fit(
        Spec(space, CANONICAL, 1, "Test"), OWN
    )
    np.testing.assert_array_equal(fitted.obs["arm/pos"], obs)
    np.testing.assert_array_equal(fitted.obs["arm"]["vel"], 2 * obs)


def test_data_set_can_have_one_transition() -> None:
    data = {name: array[:1] for name, array in arrays().items()}
    (step,) = Dataset("x", data).fit(SPEC, OWN).steps()
    assert step.ended


def test_recorded_replay_ignores_learning_starts() -> None:
    replay = replay_buffer(
        100,
        ReplaySchedule(4, 1, 1, learning_starts=1),
        n_step=1,
        gamma=0.5,
        seeds=Seeds(1),
        device=torch.device("cpu"),
        priority=PriorityOptions(),
    )
    assert RecordedReplay(replay, Dataset("x", arrays()).fit(SPEC, OWN)).replay.mass == 7


def test_hash_depends_on_content_only(tmp_path: Path) -> None:
    packed = read(save(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", **arrays())
    assert packed.sha256 == read(str(tmp_path / "b.npz")).sha256
    changed = arrays()
    changed["rewards"][3] += 1e-3
    assert read(save(tmp_path / "c.npz", rewards=changed["rewards"])).sha256 != packed.sha256
    assert packed.description == {"place": str(tmp_path / "a.npz"), "sha256": packed.sha256, "transitions": 7}


def test_windows_end_at_gaps(tmp_path: Path) -> None:
    """If an observation does not follow the one before it, the episode is truncated there."""
    data = arrays((3, 4), (False, False))
    data["truncations"][:] = False
    steps = list(Dataset("x", data).fit(SPEC, OWN).steps())
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True, False, False, False, True]
    assert [bool(step.is_first[0]) for step in steps] == [True, False, False, True, False, False, False]
    replay = make_recorded(Dataset("x", data), n_step=3).replay
    found = replay.look_up(np.arange(4))
    gamma = 0.5
    np.testing.assert_allclose(found["rest"]["reward"], [0 + 0.5 + 0.5, 1 + 1, 2, 10 + 5.5 + 3])
    np.testing.assert_allclose(found["rest"]["discount"], [gamma**3, gamma**2, gamma, gamma**3])
    assert found["next_obs"].tolist() == [[0, 3], [0, 3], [0, 3], [1, 3]]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("terminated", [True, False])
def test_windows_start_at_every_transition(alpha: float, terminated: bool) -> None:
    """They are shorter at the end of the data set, as at the end of an episode."""
    replay = make_recorded(Dataset("x", arrays((3, 4), (True, terminated))), n_step=3, alpha=alpha)
    drawn = torch.cat([batch.index for _ in range(50) for batch in replay.batches(Clock(100))])
    assert set(drawn.tolist()) == set(range(7))
    found = replay.replay.look_up(np.arange(4, 7))
    np.testing.assert_allclose(found["rest"]["reward"], [11 + 6 + 3.25, 12 + 6.5, 13])
    np.testing.assert_allclose(found["rest"]["discount"], [0.0 if terminated else 0.5**k for k in (3, 2, 1)])
    assert found["next_obs"].tolist() == [[1, 4]] * 3


def test_terminations_have_discount_0() -> None:
    found = make_recorded(Dataset("x", arrays())).replay.look_up(np.arange(7))
    assert found["rest"]["discount"].tolist() == [0.5, 0.5, 0, 0.5, 0.5, 0.5, 0.5]


def make_recorded(data: Dataset, n_step: int = 1, alpha: float = 0.0, seed: int = 1) -> RecordedReplay:
    return RecordedReplay(make_replay(n_step, alpha, seed), data.fit(SPEC, OWN))


def make_replay(n_step: int = 1, alpha: float = 0.0, seed: int = 1, **more: Any) -> Any:
    return replay_buffer(
        100,
        ReplaySchedule(4, 1, 1, 10),
        n_step=n_step,
        gamma=0.5,
        seeds=Seeds(seed),
        device=torch.device("cpu"),
        priority=PriorityOptions(alpha=alpha, **more),
    )


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_state_has_the_hash_instead_of_the_data(alpha: float) -> None:
    replay, resumed = (make_recorded(Dataset("x", arrays()), alpha=alpha, seed=seed) for seed in (1, 2))
    clock = Clock(100)
    for _ in range(3):
        (batch,) = replay.batches(clock)
        replay.feedback(batch, Result({}, torch.arange(4.0)))
    state = replay.state_dict()
    assert state["data"] == Dataset("x", arrays()).sha256
    resumed.load_state_dict(state)
    for _ in range(3):
        (batch,) = replay.batches(clock)
        (expected,) = resumed.batches(clock)
        assert batch.index.tolist() == expected.index.tolist()
    with pytest.raises(ValueError, match="the state belongs to a data set of SHA-256"):
        make_recorded(Dataset("y", arrays((7,), (True,)))).load_state_dict(state)


def test_state_has_the_extras_of_learners() -> None:
    data = Dataset("x", arrays()).fit(SPEC, OWN)
    replay, resumed = (RecordedReplay(make_replay(seed=seed).with_extras(uses=0), data) for seed in (1, 2))
    for _ in range(9):
        (batch,) = replay.batches(Clock(100))
        replay.feedback(batch, Result({}, extras={"uses": 1 + batch.index}))
    resumed.load_state_dict(replay.state_dict())
    assert resumed.replay.gather(np.arange(7)).extras["uses"].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_warm_replay_draws_in_proportion_to_sizes() -> None:
    warm = WarmReplay(make_replay(), Dataset("x", arrays((30,), (True,))).fit(SPEC, OWN))
    clock = Clock(100)
    for time in range(30):
        obs = np.full((1, 2), -1 - time, np.float32)
        step = Step(
            obs,
            np.zeros((1, 2), np.float32),
            np.zeros(1, np.float32),
            obs - 1,
            np.zeros(1, bool),
            np.zeros(1, bool),
            np.zeros(1, bool),
            np.ones(1, bool),
            False,
            {},
            None,
        )
        warm.add(step)
        assert time > 8 or not list(warm.batches(clock))  # learning_starts counts the run's own steps
    warm.replay.due_batches = 100
    batches = [batch.obs[:, 0] for batch in warm.batches(clock)]
    assert len(batches) == 100
    mine = torch.stack([(obs < 0).sum() for obs in batches])
    assert ((mine - len(batches[0]) / 2).abs() <= 1).all()  # half of each batch, as both have 30 transitions
    assert "data" in warm.state_dict()["own"]
    assert isinstance(warm.state_dict()["recorded"]["data"], str)


class HalfReward(Transform):
    def reward(self, reward: Array) -> Array:
        return super().reward(reward) / 2


def test_fit_dataset_applies_reward_wrappers() -> None:
    space = Chain(1).spec.obs
    obs = np.zeros((7, *(space.shape or ())), space.dtype)
    data = {**arrays(), "observations": obs, "next_observations": obs, "actions": np.zeros(7, np.int64)}
    plain, halved = (fit_dataset(Dataset("x", data), env) for env in (Chain(1), HalfReward(HalfReward(Chain(1)))))
    assert plain.reward.any()
    assert halved.reward.tolist() == (plain.reward / 4).tolist()


def test_recorded_replay_refuses_sampled_eviction() -> None:
    with pytest.raises(UsageError, match=r"a data set evicts nothing; leave priority\.eviction at oldest"):
        RecordedReplay(make_replay(alpha=0.6, eviction="sampled"), Dataset("x", arrays()).fit(SPEC, OWN))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"rewards": None}, "lacks 'rewards'; a data set has observations, actions"),
        ({"actions": np.array([{}] * 7, object)}, "it is not a data set: Object arrays cannot be loaded"),
        ({name: value[:0] for name, value in arrays().items()}, "it has no transitions"),
        ({"rewards": np.float32(1)}, "it has no transitions"),
        ({"observations/x": arrays()["observations"]}, "'observations/x' is inside an array"),
    ],
)
def test_read_refuses_incomplete_files(tmp_path: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadFile, match=sentence):
        read(save(tmp_path / "a.npz", **changed))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off", b"\x93NUMPY\x01\x00"])
def test_read_refuses_other_files(tmp_path: Path, content: bytes) -> None:
    replace(tmp_path / "a.npz", content)
    with pytest.raises(BadFile, match="it is not a data set"):
        read(str(tmp_path / "a.npz"))


def test_read_refuses_a_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(BadFile, match="it is one array"):
        read(str(tmp_path / "a.npy"))


def test_read_refuses_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no data set .*; `rlplug record RUN -o FILE.npz` makes one"):
        read(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"observations": np.zeros((7, 3))}, r"'observations' has shape \[3\] in each step, not \[2\];"),
        ({"actions": np.full((7, 2), 11.0)}, "its actions are outside Box"),
        ({"rewards": np.array([0, 1, np.nan, 3, 4, 5, 6])}, "'rewards' of transition 2 is not finite"),
        ({"rewards": np.array([0, 1, 2, 1e308, 4, 5, 6])}, "'rewards' of transition 3 is not finite"),
        ({"rewards": np.array(["a"] * 7)}, "'rewards' is not an array of plain numbers"),
        ({"terminations": np.zeros(6, bool)}, "'terminations' and 'rewards' differ in length"),
        (
            {"observations": {"x": np.zeros((7, 2))}},
            "it has observations/x, and Test has observations",
        ),
    ],
)
def test_fit_refuses_arrays_of_other_environments(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Dataset("x", {**arrays(), **changed}).fit(SPEC, OWN)


def test_read_restores_dictionaries(tmp_path: Path) -> None:
    flat = arrays()
    obs, after = flat.pop("observations"), flat.pop("next_observations")
    np.savez(tmp_path / "a.npz", **flat, **{"observations/a/b": obs, "next_observations/a/b": after})
    spec = Spec(spaces.Dict({"a": spaces.Dict({"b": BOX})}), CANONICAL, 1, "Test")
    fitted = read(str(tmp_path / "a.npz")).fit(spec, OWN)
    np.testing.assert_array_equal(fitted.obs["a"]["b"], obs)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari asks for more metadata
def test_read_loads_minari_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = CartPoleEnv()
    episodes = []
    env.action_space.seed(0)
    for number in range(2):
        episode = EpisodeBuffer(id=number, observations=[env.reset(seed=number)[0]], actions=[])
        ended = False
        while not ended:
            action = env.action_space.sample()
            obs, reward, ended, _, _ = env.step(action)
            episode.observations.append(obs)
            episode.actions.append(action)
            episode.rewards.append(reward)
            episode.terminations.append(ended)
            episode.truncations.append(False)
        episodes.append(episode)
    minari.create_dataset_from_buffers(
        "test/chance-v0",
        episodes,
        env=env,
        description="by chance",
        data_format="hdf5",
        algorithm_name="chance",
        author="nobody",
        author_email="nobody@example.org",
        code_permalink="https://example.org",
    )
    found = read("minari:test/chance-v0")
    obs = np.concatenate([episode.observations[:-1] for episode in episodes])
    np.testing.assert_array_equal(found.arrays["observations"], obs)
    assert found.arrays["rewards"].sum() == sum(len(episode.rewards) for episode in episodes)
    assert found.arrays["terminations"].sum() == 2
    box = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    steps = list(found.fit(Spec(box, spaces.Discrete(2), 1, "CartPole"), spaces.Discrete(2)).steps())
    assert sum(bool(step.truncated[0]) for step in steps) == 0
    assert minari.load_dataset("test/chance-v0").total_steps == len(found) == len(steps)
    with pytest.raises(UsageError, match="there is no data set minari:test/other-v0 here"):
        read("minari:test/other-v0")


def test_read_unpacks_required_arrays_only(tmp_path: Path) -> None:
    """Another array could be a decompression bomb; this one is unreadable."""
    path = save(tmp_path / "a.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("bomb.npy", b"\x93NUMPY\x01\x00 cut off")
    assert len(read(path)) == 7


def test_read_ignores_deeply_nested_descriptions(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", about=np.array("[" * 100_000))
    assert read(path).env == ""


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize(("share", "wanted"), [(0.5, 2), (0.25, 1), (0.9, 4), (1.0, 4), (0.0, 0)])
def test_warm_replay_draws_a_fixed_share_from_the_data_set(alpha: float, share: float, wanted: int) -> None:
    """The share depends neither on sizes nor on priorities, and each replay gets the priorities of its own rows."""
    replay = make_replay(alpha=alpha)
    warm = WarmReplay(replay, Dataset("x", arrays((30,), (True,))).fit(SPEC, OWN), share)
    clock = Clock(100)
    for time in range(12):
        obs = np.full((1, 2), -1 - time, np.float32)
        none = np.zeros(1, bool)
        warm.add(
            Step(
                obs,
                np.zeros((1, 2), np.float32),
                np.zeros(1, np.float32),
                obs - 1,
                none,
                none,
                none,
                np.ones(1, bool),
                False,
                {},
                None,
            )
        )
    warm.replay.due_batches = 50
    for batch in warm.batches(clock):
        theirs = batch.obs[:, 0] >= 0
        assert (len(theirs), int(theirs.sum())) == (4, wanted)
        assert batch.weight.max() == 1
        warm.feedback(batch, Result({}, 100.0 * (~theirs).float()))
    if alpha and 0 < wanted < 4:
        assert warm.replay.mass / 12 > 5 * warm.recorded.replay.mass / 30
