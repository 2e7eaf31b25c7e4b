"""Running moments against the moments of all that was seen, however it came; and who reads them when they move."""

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
def test_non_finite_values_are_found_before_they_are_stored(value: float) -> None:
    """Scaled it would be the clip's bound, so that the loss of its update knows nothing of it."""
    norm = RunningNorm((2,))
    with pytest.raises(NonFinite, match=r"^the observations that net.normalize_obs was given are not finite"):
        norm.update(torch.tensor([[1.0, value], [0.0, 2.0]]), torch.ones(2))
    assert float(norm.count) == 0


def norm_of(rows: Array, weight: Array, sizes: list[int]) -> RunningNorm:
    """The norm after the rows came in batches of these sizes, and the rest at last."""
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
def test_moments_are_those_of_all_rows_however_they_came(
    seed: int, sizes: list[int], far: float, weighted: bool
) -> None:
    """Weighted as numpy weighs, over any split into batches, empty ones and ones that do not count among them."""
    draws = np.random.default_rng(seed)
    rows = (far + draws.normal(size=(sum(sizes) + 5, 3)) * [0.1, 1.0, 30.0]).astype(np.float32)
    weight = draws.choice([0.0, 0.3, 2.0], len(rows)) if weighted else np.ones(len(rows))
    weight[-1] = 1.0
    norm = norm_of(rows, weight.astype(np.float32), sizes)
    weight, exact = weight.astype(np.float32).astype(np.float64), rows.astype(np.float64)
    mean = np.average(exact, axis=0, weights=weight)
    variance = np.average((exact - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(norm.mean, mean, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(norm.variance, variance, rtol=1e-7, atol=1e-9)
    assert float(norm.count) == pytest.approx(weight.sum())
    scaled = norm(torch.from_numpy(rows))
    assert scaled.dtype == torch.float32
    wanted = ((exact - mean) / np.sqrt(variance + 1e-8)).clip(-10, 10)
    if variance.min() > 1e-6:  # float32 observations have 24 bits, of which a far mean takes some
        np.testing.assert_allclose(scaled, wanted, atol=1e-5 + 4e-7 * far / 0.1)


def test_a_mean_far_from_zero_goes_on_moving() -> None:
    """In float32 a batch's share would be lost: 1e6 + 1e-2 is 1e6."""
    norm = RunningNorm((1,))
    for level in [0.0] * 500 + [2.0] * 500:
        norm.update(torch.full((4, 1), 1e6 + level), torch.ones(4))
    assert float(norm.mean) == pytest.approx(1e6 + 1, abs=1e-6)
    assert float(norm.variance) == pytest.approx(1, rel=1e-6)


def test_rows_of_weight_0_may_hold_anything() -> None:
    rows = np.array([[1.0], [np.nan], [3.0], [np.inf]], np.float32)
    norm = norm_of(rows, np.array([1, 0, 1, 0], np.float32), [1, 1])
    assert (float(norm.mean), float(norm.variance), float(norm.count)) == (2, 1, 2)


def test_nothing_seen_changes_nothing_and_is_only_cut() -> None:
    norm = RunningNorm((2,))
    norm.update(torch.full((3, 2), 7.0), torch.zeros(3))
    values = torch.tensor([[0.3, -500.0]])
    assert norm(values).tolist() == [[pytest.approx(0.3), -10.0]]
    assert (norm.mean.tolist(), norm.variance.tolist(), float(norm.count)) == ([0, 0], [1, 1], 0)


def test_a_constant_feature_becomes_zero_and_a_change_of_it_stays_finite() -> None:
    norm = RunningNorm((1,))
    norm.update(torch.full((100, 1), 0.1), torch.ones(100))
    assert norm(torch.full((1, 1), 0.1)).item() == 0
    assert norm(torch.tensor([[5.0], [-5.0]])).tolist() == [[10], [-10]]


def test_the_forward_pass_moves_nothing_and_an_update_moves_in_place() -> None:
    norm = RunningNorm((2,))
    places = [buffer.data_ptr() for buffer in norm.buffers()]
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    norm(torch.randn(5, 2))
    assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())
    norm.update(torch.randn(5, 2), torch.ones(5))
    assert not torch.equal(norm.scale, before["scale"])
    assert [buffer.data_ptr() for buffer in norm.buffers()] == places


# Observations


DICT = spaces.Dict({
    "vector": BOX, "matrix": spaces.Box(-1, 1, (2, 2), np.float64), "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "image": spaces.Box(0, 255, (1, 10, 10), np.uint8), "number": spaces.Discrete(3), "bits": spaces.MultiBinary(2),
    "inner": spaces.Dict({"deep": BOX, "arm.angle": BOX}), "keys": BOX, "action_mask": spaces.MultiBinary(2),
})  # fmt: skip


def drawn(space: spaces.Space[Any], num_envs: int) -> Any:
    """Samples of a space as tensors [rows, ...]."""
    if isinstance(space, spaces.Dict):
        return {name: drawn(part, num_envs) for name, part in space.spaces.items()}
    return torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(num_envs)]))


class Batch:
    """As much of a batch as a norm looks at."""

    def __init__(self, obs: Any) -> None:
        self.obs, self.weight = obs, torch.ones(64)


def test_only_box_vectors_are_scaled() -> None:
    """uint8 vectors among them; images, one-hot numbers, bits and action masks stay as they are."""
    DICT.seed(0)
    obs, norm = drawn(DICT, 64), observation_norm(DICT, NET)
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
def test_where_nothing_is_to_scale_the_encoder_is_the_plain_one(space: Any) -> None:
    assert observation_norm(space, NET) is None
    assert type(encoder(space, NET)[0]) is type(encoder(space, Net(hidden=(8,)))[0])


def test_weights_begin_the_same_with_and_without() -> None:
    """A norm draws no random numbers."""
    made = []
    for normalize in (False, True):
        torch.manual_seed(0)
        made.append(PolicyNetwork(Spec(DICT, spaces.Discrete(2), 1, "here"), Net(hidden=(8,), normalize_obs=normalize)))
    plain, normalized = made
    for one, other in zip(plain.parameters(), normalized.parameters(), strict=True):
        assert torch.equal(one, other)
    assert isinstance(normalized.encoder, Normalized)


def test_a_critic_of_actions_scales_the_observation_and_not_the_action() -> None:
    spec = Spec(BOX, spaces.Box(-1, 1, (2,), np.float32), 1, "here")
    critic = ActionCritic(spec, NET)
    obs, action = torch.randn(16, 3) * 100, torch.rand(16, 2)
    (norm,) = (module for module in critic.modules() if isinstance(module, ObservationNorm))
    norm.norm.update(obs, torch.ones(16))
    plain = ActionCritic(spec, Net(hidden=(8,)))
    own = dict(critic.named_parameters())
    plain.load_state_dict({name: own[name] for name, _ in plain.named_parameters()})
    torch.testing.assert_close(critic(obs, action), plain(norm(obs), action))


@for_each("kind", [PolicyNetwork, Critic, QNetwork, DeterministicPolicy])
@for_each("space", [BOX, spaces.Box(-1, 1, (2, 2), np.float64), spaces.Box(0, 255, (3,), np.uint8)])
def test_acting_in_numpy_scales_as_torch_does_and_follows_the_moments(kind: Any, space: spaces.Box) -> None:
    """Views of the same buffers: no copy that could be stale."""
    action = BOX if kind is DeterministicPolicy else spaces.Discrete(3)
    module = kind(Spec(space, action, 1, "here"), NET)
    plain = fast_forward(module)
    assert isinstance(plain, NumpyForward)
    draws = np.random.default_rng(0)
    for _ in range(3):
        obs = (draws.normal(size=(9, *space.shape)) * 40 + 60).astype(space.dtype)
        kept = obs.copy()
        np.testing.assert_allclose(plain(obs), TorchForward(module)(obs), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(obs, kept)
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


def test_the_networks_of_a_learner_share_one_norm_targets_among_them() -> None:
    actor_critic = learner(Tiny, TinyConfig(net=NET))
    assert len(norms(actor_critic)) == 1
    assert norms(actor_critic.policy) == norms(actor_critic.critic)
    values = learner(TinyQ, TinyQConfig(net=NET))
    assert norms(values.online) == norms(values.target)


def test_a_target_made_later_shares_them_too() -> None:
    network = QNetwork(Chain(1).spec, NET)
    target = target_network(network)
    assert norms(network) == norms(target)
    assert target.advantage is not network.advantage


@pytest.mark.parametrize("env", ["Chain", "Recall"])
def test_moments_are_those_of_all_observations_that_were_acted_on(env: str) -> None:
    """Of whole rollouts, each taken in at the end of its update: during it nothing moves."""
    seen: list[Any] = []
    runner = make_runner(
        TINY, f"{ENVS}:{env}", num_envs=3, total_timesteps=60, runner="sync", **{"net.normalize_obs": True}
    )
    made, counts = runner.learner, []
    (norm,) = (module for module in made.modules() if isinstance(module, ObservationNorm))
    part = norm.norm if env == "Chain" else norm.norm.parts[norm.norm.names.index("cue")]
    loss = made.loss

    def watched(batch: Any) -> Any:
        counts.append(float(part.count))
        return loss(batch)

    made.loss = watched
    add = runner.actor.buffer.add

    def noted(step: Step, source: int = 0) -> None:
        seen.append(np.array(step.obs if env == "Chain" else step.obs["cue"]))
        add(step, source)

    runner.actor.buffer.add = noted
    runner.run(lambda: None)
    assert counts == [12.0 * update for update in range(5)]
    rows = np.concatenate(seen).astype(np.float64)
    np.testing.assert_allclose(part.mean, rows.mean(0), atol=1e-12)
    np.testing.assert_allclose(part.variance, rows.var(0), atol=1e-12)


def test_a_batch_of_transitions_counts_by_its_weights() -> None:
    """Importance weights undo what a prioritized replay prefers."""
    from tests.core.test_batches import transitions

    norm = observation_norm(spaces.Box(-1, 1, (5,), np.float32), NET)
    assert norm is not None
    batch = transitions(torch.tensor([1.0, 0.0, 0.25]))
    norm.update_stats(batch, Clock(1))
    obs = batch.obs.double().numpy()
    np.testing.assert_allclose(norm.norm.mean, (obs[0] + 0.25 * obs[2]) / 1.25)


def test_without_the_option_nothing_is_moved_after_an_update() -> None:
    assert not list(learner(Tiny, TinyConfig()).running)
    assert len(list(learner(Tiny, TinyConfig(net=NET)).running)) == 1


class Elsewhere(Tiny):
    """Has a network that looks at something else."""

    def build(self) -> None:
        super().build()
        self.other = encoder(BOX, self.config.net)[0]


def test_a_network_for_other_observations_is_refused() -> None:
    learner(Elsewhere, TinyConfig())
    with pytest.raises(
        UsageError,
        match=r"Elsewhere cannot normalize observations: one of its networks has the input.*net.normalize_obs at false",
    ):
        learner(Elsewhere, TinyConfig(net=NET))


def test_anything_that_runs_is_shown_every_batch() -> None:
    """A third party's module needs no more than to be there."""

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

    made = learner(Counting, TinyConfig())
    env, buffer, clock = Chain(1), RolloutBuffer(2), Clock(100)
    env.reset(0)
    for _ in range(3):
        made.update(rollout([[1.0], [1.0]], [[0], [0]]), clock)
        clock.updates += 1
    assert made.counter.batches == 3
    assert buffer.position == 0


@pytest.mark.parametrize("runner", [{"runner": "sync"}, {"runner": "async", "inline": True, "workers": 1}])
def test_state_comes_back_to_the_bit(runner: dict[str, Any]) -> None:
    options = {"num_envs": 2, "total_timesteps": 80, "net.normalize_obs": True, **runner}
    made, fresh = (make_runner(TINY, f"{ENVS}:Chain", **options) for _ in range(2))
    made.run(lambda: None)
    fresh.load_state_dict(made.state_dict())
    assert difference(leaves(fresh.state_dict()), leaves(made.state_dict())) == ""


def test_one_asynchronous_worker_moves_them_as_the_synchronous_loop_does() -> None:
    options = {"num_envs": 2, "total_timesteps": 80, "net.normalize_obs": True}
    alone = make_runner(TINY, f"{ENVS}:Chain", runner="sync", **options)
    worker = make_runner(TINY, f"{ENVS}:Chain", runner="async", inline=True, workers=1, **options)
    for made in (alone, worker):
        made.run(lambda: None)
    weights = [leaves(made.snapshot().agent().weights()) for made in (alone, worker)]
    assert difference(*weights) == ""
    assert any("norm.mean" in name for name in weights[0])


def test_asynchronous_workers_share_them() -> None:
    made = make_runner(
        TINY,
        f"{ENVS}:Chain",
        runner="async",
        inline=True,
        workers=3,
        num_envs=1,
        total_timesteps=120,
        **{"net.normalize_obs": True},
    )
    made.run(lambda: None)
    master = made.snapshot().policy.encoder.norm.norm
    for worker in made.workers:
        for module in (worker.learner.policy, worker.learner.critic):
            assert module.encoder.norm.norm.mean.data_ptr() == master.mean.data_ptr()
        assert not any("norm." in name for name in worker.state_dict()["learner"])
    assert float(master.count) == 4 * made.clock.updates


# Rewards


def rollout(reward: list[list[float]], first: list[list[int]], weight: list[list[float]] | None = None) -> Any:
    """A rollout of these rewards [T, N], with observations of a chain."""
    steps, num_envs = np.shape(reward)
    buffer = RolloutBuffer(steps)
    never, obs = np.zeros(num_envs, np.bool_), np.zeros((num_envs, 5), np.float32)
    for t in range(steps):
        valid = np.ones(num_envs, np.bool_) if weight is None else np.array(weight[t], dtype=np.bool_)
        action, opens = np.zeros(num_envs, np.int64), np.array(first[t], dtype=np.bool_)
        extras = {"log_prob": np.zeros(num_envs, np.float32)}
        rewards = np.array(reward[t], np.float32)
        buffer.add(Step(obs, action, rewards, obs, never, never, opens, valid, False, extras, None))
    return next(iter(buffer.batches(Clock(1))))


def slow_returns(reward: Array, is_first: Array, weight: Array, gamma: float) -> list[float]:
    """Each valid step's discounted sum of the rewards of its episode up to it."""
    found = []
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
            found.append(total)
    return found


@given(st.integers(0, 1000), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_rewards_are_scaled_by_the_deviation_of_the_discounted_return(
    seed: int, sizes: list[int], num_envs: int, holes: bool
) -> None:
    """Over rollouts of any lengths, which cut no return, and past rows that hold no transition."""
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
    wanted = 1 / np.sqrt(np.var(returns or [1.0]) + 1e-8)  # where nothing was absorbed, of the batch itself
    assert scaled.reward[0, 0] == pytest.approx(min(10, wanted), rel=1e-5)
    assert batch.reward[0, 0] == 1
    assert scaled.views is batch.views is not None  # made once for the buffer's memory


def test_the_first_rollout_is_scaled_by_its_own_returns_and_leaves_them_to_the_update() -> None:
    scale, first = RewardScale(0.9), rollout([[-8.0, 3.0], [-16.0, 5.0], [2.0, 1.0]], [[1, 1], [0, 0], [0, 1]])
    scaled = scale(first)
    assert scaled.reward.std() < 2
    assert (float(scale.norm.count), len(scale.running)) == (0, 0)
    scale.update_stats(first, Clock(1))
    assert scale(first).reward.tolist() == scaled.reward.tolist()
    later = rollout([[1000.0, 1000.0]], [[0, 0]])
    assert scale(later).reward.tolist() == [[10.0, 10.0]]  # by those before it alone


def test_running_returns_are_saved_and_fit_any_number_of_rows() -> None:
    one, other = RewardScale(0.5), RewardScale(0.5)
    one.update_stats(rollout([[1.0, 2.0]], [[1, 1]]), Clock(1))
    other.load_state_dict(one.state_dict())
    for scale in (one, other):
        scale.update_stats(rollout([[1.0, 2.0]], [[0, 0]]), Clock(1))
        assert scale.running.tolist() == [1.5, 3.0]
    assert one.norm.variance == other.norm.variance
    other.update_stats(rollout([[4.0]], [[0]]), Clock(1))
    assert other.running.tolist() == [4.0]


def test_a_running_module_of_contract_1_is_updated_by_its_former_method() -> None:
    class Former(Running):
        def absorb(self, batch: Any, clock: Clock) -> None:
            self.seen = batch

    former = Former()
    with pytest.warns(DeprecationWarning, match="update_stats"):
        former.update_stats("batch", Clock(1))
    assert former.seen == "batch"
    with pytest.raises(NotImplementedError, match="does not define update_stats"):
        Running().update_stats("batch", Clock(1))
