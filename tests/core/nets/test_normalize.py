"""Running moments of observations and rewards against the moments of all rows, and the networks that use them."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.errors import NonFinite, UsageError
from rlplug_core.fast.forward import NumpyForward
from rlplug_core.learning.targets import target_network
from rlplug_core.nets.continuous import ActionCritic, DeterministicPolicy
from rlplug_core.nets.encoders import Normalized, encoder, observation_norm
from rlplug_core.nets.forward import TorchForward, fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import ObservationNorm, RewardScale, Running, RunningNorm
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.types import Array, Result, Spec, Step
from tests.core.fakes import ENVS, TINY, Tiny, TinyConfig, TinyQ, TinyQConfig, make_runner
from tests.tables import for_each

BOX = spaces.Box(-1, 1, (3,), np.float32)
NET = Net(hidden=(8,), normalize_obs=True)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_update_refuses_non_finite_values(value: float) -> None:
    """Scaling clips such a value, so the loss stays finite."""
    norm = RunningNorm((2,))
    with pytest.raises(NonFinite, match=r"^observations that net.normalize_obs got are not finite"):
        norm.update(torch.tensor([[1.0, value], [0.0, 2.0]]), torch.ones(2))
    assert float(norm.count) == 0


def norm_of(rows: Array, weight: Array, sizes: list[int]) -> RunningNorm:
    """Update a norm with batches of these sizes, then with the other rows."""
    norm = RunningNorm(rows.shape[1:])
    for part, counts in zip(np.split(rows, np.cumsum(sizes)), np.split(weight, np.cumsum(sizes)), strict=True):
        norm.update(torch.from_numpy(part), torch.from_numpy(counts))
    return norm


@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 7), max_size=6),
    st.sampled_from([0.0, 1.0, 1e4, 1e6]),
    st.booleans(),
)
def test_moments_do_not_depend_on_batches(seed: int, sizes: list[int], far: float, weighted: bool) -> None:
    """Equal to numpy's weighted moments of all rows; some batches are empty or have weight 0."""
    draws = np.random.default_rng(seed)
    rows = (far + draws.normal(size=(sum(sizes) + 5, 3)) * [0.1, 1.0, 30.0]).astype(np.float32)
    weight = draws.choice([0.0, 0.3, 2.0], len(rows)) if weighted else np.ones(len(rows))
    weight[-1] = 1.0
    norm = norm_of(rows, weight.astype(np.float32), sizes)
    weight = weight.astype(np.float32).astype(np.float64)
    exact = rows.astype(np.float64)
    mean = np.average(exact, axis=0, weights=weight)
    variance = np.average((exact - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(norm.mean, mean, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(norm.variance, variance, rtol=1e-7, atol=1e-9)
    assert float(norm.count) == pytest.approx(weight.sum())
    scaled = norm(torch.from_numpy(rows))
    assert scaled.dtype == torch.float32
    wanted = ((exact - mean) / np.sqrt(variance + 1e-8)).clip(-10, 10)
    if variance.min() > 1e-6:  # a large mean takes some of the 24 bits of float32 observations
        np.testing.assert_allclose(scaled, wanted, atol=1e-5 + 4e-7 * far / 0.1)


def test_large_mean_still_moves() -> None:
    """Float32 would lose the change of a batch: 1e6 + 1e-2 is 1e6."""
    norm = RunningNorm((1,))
    for level in [0.0] * 500 + [2.0] * 500:
        norm.update(torch.full((4, 1), 1e6 + level), torch.ones(4))
    assert float(norm.mean) == pytest.approx(1e6 + 1, abs=1e-6)
    assert float(norm.variance) == pytest.approx(1, rel=1e-6)


def test_update_ignores_values_of_weight_0() -> None:
    rows = np.array([[1.0], [np.nan], [3.0], [np.inf]], np.float32)
    norm = norm_of(rows, np.array([1, 0, 1, 0], np.float32), [1, 1])
    assert (float(norm.mean), float(norm.variance), float(norm.count)) == (2, 1, 2)


def test_norm_without_data_only_clips() -> None:
    norm = RunningNorm((2,))
    norm.update(torch.full((3, 2), 7.0), torch.zeros(3))
    values = torch.tensor([[0.3, -500.0]])
    assert norm(values).tolist() == [[pytest.approx(0.3), -10.0]]
    assert (norm.mean.tolist(), norm.variance.tolist(), float(norm.count)) == ([0, 0], [1, 1], 0)


def test_constant_feature_becomes_zero() -> None:
    norm = RunningNorm((1,))
    norm.update(torch.full((100, 1), 0.1), torch.ones(100))
    assert norm(torch.full((1, 1), 0.1)).item() == 0
    assert norm(torch.tensor([[5.0], [-5.0]])).tolist() == [[10], [-10]]


def test_forward_changes_no_moments_and_update_writes_in_place() -> None:
    norm = RunningNorm((2,))
    pointers = [buffer.data_ptr() for buffer in norm.buffers()]
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    norm(torch.randn(5, 2))
    assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())
    norm.update(torch.randn(5, 2), torch.ones(5))
    assert not torch.equal(norm.scale, before["scale"])
    assert [buffer.data_ptr() for buffer in norm.buffers()] == pointers


# Observations


DICT = spaces.Dict(
    {
        "vector": BOX,
        "matrix": spaces.Box(-1, 1, (2, 2), np.float64),
        "bytes": spaces.Box(0, 255, (4,), np.uint8),
        "image": spaces.Box(0, 255, (1, 10, 10), np.uint8),
        "number": spaces.Discrete(3),
        "bits": spaces.MultiBinary(2),
        "inner": spaces.Dict({"deep": BOX, "arm.angle": BOX}),
        "keys": BOX,
        "action_mask": spaces.MultiBinary(2),
    }
)


def draw(space: spaces.Space[Any], num_envs: int) -> Any:
    """Sample a space as tensors [rows, ...]."""
    if isinstance(space, spaces.Dict):
        return {name: draw(part, num_envs) for name, part in space.spaces.items()}
    return torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(num_envs)]))


class Batch:
    """Those fields of a batch that a norm reads."""

    def __init__(self, obs: Any) -> None:
        self.obs = obs
        self.weight = torch.ones(64)


def test_observation_norm_scales_box_vectors_only() -> None:
    """Also uint8 vectors, but not images, one-hot numbers, bits and action masks."""
    DICT.seed(0)
    obs = draw(DICT, 64)
    norm = observation_norm(DICT, NET)
    assert norm is not None
    norm.update_stats(Batch(obs), Clock(1))
    scaled = norm(obs)
    for name in ("image", "number", "bits", "action_mask"):
        assert scaled[name] is obs[name]
    assert list(scaled) == list(obs)
    vectors = [scaled[name] for name in ("vector", "matrix", "bytes", "keys")]
    for part in (*vectors, *scaled["inner"].values()):
        assert part.dtype == torch.float32
        np.testing.assert_allclose(part.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(part.std(0, correction=0), 1, atol=1e-4)


@pytest.mark.parametrize("space", [DICT["image"], DICT["number"], DICT["bits"], spaces.Dict({"n": DICT["number"]})])
def test_encoder_is_plain_if_the_space_has_no_vectors(space: Any) -> None:
    assert observation_norm(space, NET) is None
    assert type(encoder(space, NET)[0]) is type(encoder(space, Net(hidden=(8,)))[0])


def test_norm_does_not_change_initial_weights() -> None:
    networks = []
    for normalize in (False, True):
        torch.manual_seed(0)
        net = Net(hidden=(8,), normalize_obs=normalize)
        networks.append(PolicyNetwork(Spec(DICT, spaces.Discrete(2), 1, "here"), net))
    plain, normalized = networks
    assert all(map(torch.equal, plain.parameters(), normalized.parameters()))
    assert isinstance(normalized.encoder, Normalized)


def test_action_critic_normalizes_observations_only() -> None:
    spec = Spec(BOX, spaces.Box(-1, 1, (2,), np.float32), 1, "here")
    critic = ActionCritic(spec, NET)
    obs = torch.randn(16, 3) * 100
    action = torch.rand(16, 2)
    (norm,) = (module for module in critic.modules() if isinstance(module, ObservationNorm))
    norm.norm.update(obs, torch.ones(16))
    plain = ActionCritic(spec, Net(hidden=(8,)))
    own = dict(critic.named_parameters())
    plain.load_state_dict({name: own[name] for name, _ in plain.named_parameters()})
    torch.testing.assert_close(critic(obs, action), plain(norm(obs), action))


@for_each("kind", [PolicyNetwork, Critic, QNetwork, DeterministicPolicy])
@for_each("space", [BOX, spaces.Box(-1, 1, (2, 2), np.float64), spaces.Box(0, 255, (3,), np.uint8)])
def test_numpy_forward_normalizes_as_torch(kind: Any, space: spaces.Box) -> None:
    """It reads the same buffers, so it follows an update of the moments."""
    action = BOX if kind is DeterministicPolicy else spaces.Discrete(3)
    module = kind(Spec(space, action, 1, "here"), NET)
    plain = fast_forward(module)
    assert isinstance(plain, NumpyForward)
    draws = np.random.default_rng(0)
    for _ in range(3):
        obs = (draws.normal(size=(9, *space.shape)) * 40 + 60).astype(space.dtype)
        copy = obs.copy()
        np.testing.assert_allclose(plain(obs), TorchForward(module)(obs), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(obs, copy)
        before = plain(obs)
        module.encoder.norm.norm.update(torch.from_numpy(obs), torch.ones(9))
        assert not np.array_equal(plain(obs), before)


# In learners


def learner(cls: type[Algorithm[Any]], config: Any) -> Any:
    return cls(Chain(1).spec, config, Context(Seeds(0)))


def norms(module: nn.Module) -> set[int]:
    found = {id(part) for part in module.modules() if isinstance(part, ObservationNorm)}
    assert found
    return found


def test_networks_and_targets_share_one_norm() -> None:
    actor_critic = learner(Tiny, TinyConfig(net=NET))
    assert len(norms(actor_critic)) == 1
    assert norms(actor_critic.policy) == norms(actor_critic.critic)
    values = learner(TinyQ, TinyQConfig(net=NET))
    assert norms(values.online) == norms(values.target)


def test_target_network_shares_the_norm() -> None:
    network = QNetwork(Chain(1).spec, NET)
    target = target_network(network)
    assert norms(network) == norms(target)
    assert target.advantage is not network.advantage


@pytest.mark.parametrize("env", ["Chain", "Recall"])
def test_runs_update_moments_with_all_observations(env: str) -> None:
    """Each rollout counts at the end of its update, so the moments are constant during an update."""
    observations: list[Any] = []
    runner = make_runner(
        TINY, f"{ENVS}:{env}", num_envs=3, total_timesteps=60, runner="sync", **{"net.normalize_obs": True}
    )
    counts = []
    (norm,) = (module for module in runner.learner.modules() if isinstance(module, ObservationNorm))
    part = norm.norm if env == "Chain" else norm.norm.parts[norm.norm.names.index("cue")]
    loss = runner.learner.loss

    def loss_with_count(batch: Any) -> Any:
        counts.append(float(part.count))
        return loss(batch)

    runner.learner.loss = loss_with_count
    add = runner.actor.buffer.add

    def record(step: Step, source: int = 0) -> None:
        observations.append(np.array(step.obs if env == "Chain" else step.obs["cue"]))
        add(step, source)

    runner.actor.buffer.add = record
    runner.run(lambda: None)
    assert counts == [12.0 * update for update in range(5)]
    rows = np.concatenate(observations).astype(np.float64)
    np.testing.assert_allclose(part.mean, rows.mean(0), atol=1e-12)
    np.testing.assert_allclose(part.variance, rows.var(0), atol=1e-12)


def test_moments_use_importance_weights() -> None:
    """The weights undo the preferences of a prioritized replay."""
    from tests.core.test_batches import transitions

    norm = observation_norm(spaces.Box(-1, 1, (5,), np.float32), NET)
    assert norm is not None
    batch = transitions(torch.tensor([1.0, 0.0, 0.25]))
    norm.update_stats(batch, Clock(1))
    obs = batch.obs.double().numpy()
    np.testing.assert_allclose(norm.norm.mean, (obs[0] + 0.25 * obs[2]) / 1.25)


def test_learner_has_no_norm_by_default() -> None:
    assert not list(learner(Tiny, TinyConfig()).running)
    assert len(list(learner(Tiny, TinyConfig(net=NET)).running)) == 1


class OtherObs(Tiny):
    """Has a network for other observations."""

    def build(self) -> None:
        super().build()
        self.other = encoder(BOX, self.config.net)[0]


def test_normalize_obs_refuses_networks_for_other_observations() -> None:
    learner(OtherObs, TinyConfig())
    with pytest.raises(
        UsageError,
        match=r"OtherObs cannot normalize observations: one of its networks has the input.*net.normalize_obs at false",
    ):
        learner(OtherObs, TinyConfig(net=NET))


def test_running_modules_get_every_batch() -> None:
    """A third party's module only needs to be an attribute."""

    class Counter(Running):
        def __init__(self) -> None:
            super().__init__()
            self.batches = 0

        def update_stats(self, batch: Any, clock: Clock) -> None:
            self.batches += 1

    class Counting(Tiny):
        def build(self) -> None:
            super().build()
            self.counter = Counter()

        def learn(self, batch: Any, now: Any, clock: Clock) -> Result:
            assert self.counter.batches == clock.updates
            return super().learn(batch, now, clock)

    counting = learner(Counting, TinyConfig())
    env = Chain(1)
    buffer = RolloutBuffer(2)
    clock = Clock(100)
    env.reset(0)
    for _ in range(3):
        counting.update(rollout([[1.0], [1.0]], [[0], [0]]), clock)
        clock.updates += 1
    assert counting.counter.batches == 3
    assert buffer.position == 0


@pytest.mark.parametrize("runner", [{"runner": "sync"}, {"runner": "async", "inline": True, "workers": 1}])
def test_state_of_norms_round_trips(runner: dict[str, Any]) -> None:
    options = {"num_envs": 2, "total_timesteps": 80, "net.normalize_obs": True, **runner}
    loop, fresh = (make_runner(TINY, f"{ENVS}:Chain", **options) for _ in range(2))
    loop.run(lambda: None)
    fresh.load_state_dict(loop.state_dict())
    assert difference(leaves(fresh.state_dict()), leaves(loop.state_dict())) == ""


def test_one_async_worker_updates_norms_as_the_sync_loop() -> None:
    options = {"num_envs": 2, "total_timesteps": 80, "net.normalize_obs": True}
    sync = make_runner(TINY, f"{ENVS}:Chain", runner="sync", **options)
    worker = make_runner(TINY, f"{ENVS}:Chain", runner="async", inline=True, workers=1, **options)
    for runner in (sync, worker):
        runner.run(lambda: None)
    weights = [leaves(runner.snapshot().agent().weights()) for runner in (sync, worker)]
    assert difference(*weights) == ""
    assert any("norm.mean" in name for name in weights[0])


def test_async_workers_share_norms() -> None:
    loop = make_runner(
        TINY,
        f"{ENVS}:Chain",
        runner="async",
        inline=True,
        workers=3,
        num_envs=1,
        total_timesteps=120,
        **{"net.normalize_obs": True},
    )
    loop.run(lambda: None)
    master = loop.snapshot().policy.encoder.norm.norm
    for worker in loop.workers:
        for module in (worker.learner.policy, worker.learner.critic):
            assert module.encoder.norm.norm.mean.data_ptr() == master.mean.data_ptr()
        assert not any("norm." in name for name in worker.state_dict()["learner"])
    assert float(master.count) == 4 * loop.clock.updates


# Rewards


def rollout(reward: list[list[float]], first: list[list[int]], weight: list[list[float]] | None = None) -> Any:
    """Make a rollout of these rewards [T, N]."""
    steps, num_envs = np.shape(reward)
    buffer = RolloutBuffer(steps)
    never = np.zeros(num_envs, np.bool_)
    obs = np.zeros((num_envs, 5), np.float32)
    for t in range(steps):
        valid = np.ones(num_envs, np.bool_) if weight is None else np.array(weight[t], dtype=np.bool_)
        action = np.zeros(num_envs, np.int64)
        opens = np.array(first[t], dtype=np.bool_)
        extras = {"log_prob": np.zeros(num_envs, np.float32)}
        rewards = np.array(reward[t], np.float32)
        buffer.add(Step(obs, action, rewards, obs, never, never, opens, valid, False, extras, None))
    return next(iter(buffer.batches(Clock(1))))


def slow_returns(reward: Array, is_first: Array, weight: Array, gamma: float) -> list[float]:
    """Sum, for each valid step, the discounted rewards of its episode up to that step."""
    returns = []
    for t in range(len(reward)):
        for row in range(reward.shape[1]):
            if not weight[t, row]:
                continue
            total, factor = 0.0, 1.0
            for before in range(t, -1, -1):
                if weight[before, row]:
                    total += factor * reward[before, row]
                    factor *= gamma
                if is_first[before, row]:
                    break
            returns.append(total)
    return returns


@given(st.integers(0, 1000), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_reward_scale_divides_by_the_deviation_of_returns(
    seed: int, sizes: list[int], num_envs: int, holes: bool
) -> None:
    """Returns continue across rollouts of any length and skip invalid rows."""
    draws = np.random.default_rng(seed)
    steps = sum(sizes)
    reward = (draws.normal(size=(steps, num_envs)) * 1000).astype(np.float32)
    first = draws.random((steps, num_envs)) < 0.3
    weight = draws.random((steps, num_envs)) > (0.3 if holes else -1)
    scale = RewardScale(0.9)
    for part in np.split(np.arange(steps), np.cumsum(sizes)[:-1]):
        garbage = np.where(weight[part], reward[part], 1e6)
        scale.update_stats(rollout(garbage.tolist(), first[part].tolist(), weight[part].tolist()), Clock(1))
    returns = slow_returns(reward.astype(np.float64), first, weight, 0.9)
    if returns:
        assert float(scale.norm.variance) == pytest.approx(np.var(returns), rel=1e-9, abs=1e-6)
    batch = rollout([[1.0]], [[0]])
    scaled = scale(batch)
    wanted = 1 / np.sqrt(np.var(returns or [1.0]) + 1e-8)  # without earlier returns, those of the batch itself
    assert scaled.reward[0, 0] == pytest.approx(min(10, wanted), rel=1e-5)
    assert batch.reward[0, 0] == 1
    assert scaled.views is batch.views is not None  # made only once


def test_reward_scale_uses_returns_of_the_first_rollout() -> None:
    scale = RewardScale(0.9)
    first = rollout([[-8.0, 3.0], [-16.0, 5.0], [2.0, 1.0]], [[1, 1], [0, 0], [0, 1]])
    scaled = scale(first)
    assert scaled.reward.std() < 2
    assert (float(scale.norm.count), len(scale.running)) == (0, 0)
    scale.update_stats(first, Clock(1))
    assert scale(first).reward.tolist() == scaled.reward.tolist()
    later = rollout([[1000.0, 1000.0]], [[0, 0]])
    assert scale(later).reward.tolist() == [[10.0, 10.0]]  # its own returns do not count


def test_reward_scale_saves_returns_and_accepts_any_number_of_rows() -> None:
    saved, loaded = RewardScale(0.5), RewardScale(0.5)
    saved.update_stats(rollout([[1.0, 2.0]], [[1, 1]]), Clock(1))
    loaded.load_state_dict(saved.state_dict())
    for scale in (saved, loaded):
        scale.update_stats(rollout([[1.0, 2.0]], [[0, 0]]), Clock(1))
        assert scale.running.tolist() == [1.5, 3.0]
    assert saved.norm.variance == loaded.norm.variance
    loaded.update_stats(rollout([[4.0]], [[0]]), Clock(1))
    assert loaded.running.tolist() == [4.0]


def test_running_calls_absorb_with_a_deprecation_warning() -> None:
    class Former(Running):
        def absorb(self, batch: Any, clock: Clock) -> None:
            self.seen = batch

    former = Former()
    with pytest.warns(DeprecationWarning, match="update_stats"):
        former.update_stats("batch", Clock(1))
    assert former.seen == "batch"
    with pytest.raises(NotImplementedError, match="does not define update_stats"):
        Running().update_stats("batch", Clock(1))
