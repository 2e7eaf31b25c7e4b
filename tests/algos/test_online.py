"""Q-learning and SARSA without replay: targets against slow references, and the state that workers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import exp
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.acting.epsilon_greedy import of_action
from rlplug_core.acting.explorer import take_turns
from rlplug_core.batches import Rollout, Samples
from rlplug_core.buffers.pairs import PairBuffer
from rlplug_core.clock import Clock
from rlplug_core.types import Array, Step
from tests.algos.conftest import make_learner, make_runner
from tests.algos.losses import huber
from tests.algos.test_dqn_loss import scatter
from tests.core.stories import Story, stories, value
from tests.reference import returns
from tests.reference.returns import Moment
from tests.tables import for_each
from tests.waiting import PATIENCE

#: `nstep-q` that reports whether the target network moved.
WATCHED = f"{Path(__file__).with_name('probes.py')}:ReportsTarget"
ONLINE = ("vqn", "vsarsa", "nstep-q")
ACTIONS = 7
STORIES = stories(st.integers(1, 12))
#: Not `st.floats`, which fails if denormal numbers are flushed, as in a training process.
GAMMAS = st.sampled_from([0.0, 0.5, 0.9, 1.0])
#: None, or noise for the online network, the next values, and the choice there.
NOISES: st.SearchStrategy[tuple[int, ...]] = st.sampled_from([(), (111, 222, 333)])


def targets_of(learner: Any, rollout: Rollout, clock: Clock, noise: Any = (None, None, None)) -> Any:
    """Return the targets of an online learner at a time of the clock."""
    extra = (clock,) if type(learner).__name__ == "VSarsa" else ()
    return learner.td_target(rollout, [*noise, None, None, None][:3], learner.config, *extra)


def noisy(values: Any) -> Any:
    """Replace a forward pass; noise on the weights shifts its values."""
    return lambda obs, noise: values(obs) if noise is None else values(obs, noise)


def table(obs: Array, shift: int = 0) -> Array:
    """Return made-up values [B, ACTIONS] of observations [B, 1]."""
    return np.stack([value(obs[:, 0] * (action + 1) + shift) for action in range(ACTIONS)], -1).astype(np.float32)


def row(obs: int, shift: int = 0) -> list[float]:
    """Return the same for one observation, as plain numbers."""
    values: list[float] = table(np.array([[obs]], dtype=np.float32), shift)[0].tolist()
    return values


def rollouts_of(learner: Any, story: Story, noise: tuple[int, ...] = ()) -> list[tuple[Array, Array, Array]]:
    """Return observations, weights and targets of the rollouts of a learner's buffer for a story.

    `noise` replaces noise on the weights: it shifts the table.
    """
    learner.predict_q = noisy(table)
    buffer = learner.buffer()
    rollouts = []
    for step in story.steps():
        buffer.add(step)
        for rollout in buffer.batches(Clock(100)):
            rollouts.append(
                (rollout.obs.copy(), rollout.weight.copy(), targets_of(learner, rollout, Clock(100, 50), noise))
            )
    return rollouts


@settings(max_examples=60, deadline=None)
@given(STORIES, GAMMAS, NOISES)
def test_vqn_looks_one_step_ahead(story: Story, gamma: float, noise: tuple[int, ...]) -> None:
    """r + gamma max Q(s', a') of the true successor, and only r at a termination."""
    rollouts = rollouts_of(make_learner("vqn", "Bandit", {"gamma": gamma}), story, noise)
    assert len(rollouts) == len(story)
    for time, (_, _, targets) in enumerate(rollouts):
        for number, moments in enumerate(story.moments):
            moment = moments[time]
            if moment.valid:
                best = 0.0 if moment.terminated else max(row(moment.next_obs, *noise[1:2]))
                assert targets[0, number] == pytest.approx(moment.reward + gamma * best, rel=1e-4, abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(STORIES, GAMMAS, st.integers(1, 5), st.booleans(), NOISES)
def test_nstep_q_sums_rewards_and_bootstraps_from_the_target_network(
    story: Story, gamma: float, steps: int, double: bool, noise: tuple[int, ...]
) -> None:
    """The rewards to the end of the rollout or episode, then the target network's value of the best action."""
    learner = make_learner("nstep-q", "Bandit", {"gamma": gamma, "n_steps": steps, "double": double})
    learner.predict_target_q = noisy(lambda obs, shift=0: table(obs, 1000 + shift))
    shift, choice = (1000 + noise[1], noise[2]) if noise else (1000, 0)

    def best(obs: int) -> float:
        chooser = row(obs, choice if double else shift)
        return row(obs, shift)[chooser.index(max(chooser))]

    rollouts = rollouts_of(learner, story, noise)
    assert len(rollouts) == len(story) // steps
    for number, (_, _, targets) in enumerate(rollouts):
        for which, moments in enumerate(story.moments):
            expected = returns.n_step(moments[number * steps : (number + 1) * steps], best, gamma)
            for time, target in expected.items():
                assert targets[time, which] == pytest.approx(target, rel=1e-4, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(stories(st.integers(4, 16)), GAMMAS, st.integers(1, 4))
def test_replayed_rollouts_get_targets_of_the_current_networks(story: Story, gamma: float, steps: int) -> None:
    """Compare new and old batches with their steps and the values at the time of the batch."""
    options = {"gamma": gamma, "n_steps": steps, "replay_ratio": 2.0, "buffer_size": 3 * steps * story.num_envs}
    learner = make_learner("nstep-q", "Bandit", options)
    learner.spec = replace(learner.spec, num_envs=story.num_envs)
    buffer = learner.buffer()
    handed = 0
    windows = [[moments[begin : begin + steps] for moments in story.moments] for begin in range(0, len(story), steps)]
    for step in story.steps():
        buffer.add(step)
        for rollout in buffer.batches(Clock(100)):
            learner.predict_target_q = noisy(partial(table, shift=handed))
            now = handed
            handed += 1
            (window,) = (each for each in windows if each[0][0].obs == rollout.obs[0, 0, 0])
            targets = targets_of(learner, rollout, Clock(100))
            for which, moments in enumerate(window):
                for time, target in returns.n_step(moments, lambda obs: max(row(obs, now)), gamma).items():  # noqa: B023
                    assert targets[time, which] == pytest.approx(target, rel=1e-4, abs=1e-4)
                assert rollout.weight[:, which].tolist() == [moment.valid for moment in moments]
    assert handed >= len(story) // steps


def test_absent_rows_of_a_replayed_rollout_change_nothing(make_learner: Callable[..., Any]) -> None:
    """The gradient does not depend on their content."""
    learner = make_learner("nstep-q", "Bandit", n_steps=4, replay_ratio=3.0, **{"net.hidden": [8]})

    def gradients(garbage: float) -> list[torch.Tensor]:
        buffer = learner.buffer()
        rollouts = []
        for time in range(24):
            absent = np.array([time % 3 == 1, False])
            never = np.zeros(2, bool)
            obs = np.ones((2, 1), np.float32)
            reward = np.array([time, 1], np.float32)
            obs[absent] = reward[absent] = garbage
            action = never.astype(np.int64)
            after = np.ones((2, 1), np.float32)
            buffer.add(Step(obs, action, reward, after, never, never, never, ~absent, False, {}, None))
            for rollout in buffer.batches(Clock(100)):
                target = targets_of(learner, rollout, Clock(100))
                loss = learner.loss(rollout.samples(target, target, learner.device), None, learner.config)[0]
                rollouts.append(
                    torch.cat([part.ravel() for part in torch.autograd.grad(loss, learner.optimizers[0].parameters)])
                )
        return rollouts

    clean, dirty = gradients(0.0), gradients(1e6)
    assert len(clean) == len(dirty) > 12
    for one, other in zip(clean, dirty, strict=True):
        assert torch.equal(one, other)
        assert one.abs().sum() > 0


@pytest.mark.parametrize("options", [{"runner": "sync"}, {"inline": True, "workers": 2}], ids=["sync", "async"])
def test_replay_adds_updates_and_changes_no_others(train_runner: Callable[..., Any], options: dict[str, Any]) -> None:
    """A tiny ratio never replays and gives the bits of none; a ratio of 2 makes about three updates per rollout."""
    common = {"num_envs": 2, "n_steps": 5, "total_timesteps": 2_000, **options}
    plain, never, often = (
        train_runner("nstep-q", "Chain", replay_ratio=ratio, **common) for ratio in (0.0, 1e-12, 2.0)
    )
    assert torch.equal(plain.snapshot().optimizers[0].flat, never.snapshot().optimizers[0].flat)
    assert plain.clock.updates == never.clock.updates == 200
    assert often.clock.updates == pytest.approx(600, abs=4 * (2 * 200) ** 0.5)


def test_workers_replay_independently(make_learner: Callable[..., Any]) -> None:
    """Each has its own generator, and stores whole rollouts, at least one."""
    learner = make_learner("nstep-q", "Chain", n_steps=10, replay_ratio=1.0, buffer_size=39)
    first = learner.buffer()
    learner.context = replace(learner.context, rank=1)
    second = learner.buffer()
    assert first.capacity == 3
    assert first.generator.integers(1 << 60) != second.generator.integers(1 << 60)
    assert make_learner("nstep-q", "Chain", n_steps=10, replay_ratio=1.0, buffer_size=1).buffer().capacity == 1


def epsilon_greedy(by: list[float]) -> list[float]:
    """Return the probabilities of actions with epsilon 0.5."""
    return [0.5 / len(by) + 0.5 * (one == max(by)) for one in by]


def softmax(by: list[float]) -> list[float]:
    """Return the probabilities with softmax at temperature 2."""
    powers = [exp(one / 2) for one in by]
    return [power / sum(powers) for power in powers]


def uniform(by: list[float]) -> list[float]:
    """Return the probabilities during random steps."""
    return [1 / len(by)] * len(by)


#: Options for exploration, halfway through a run, with their probabilities.
WAYS: list[tuple[dict[str, Any], Callable[[list[float]], list[float]]]] = [
    ({"exploration_final_eps": 0.0, "exploration_fraction": 1.0}, epsilon_greedy),
    ({"softmax_temperature": 2.0}, softmax),
    ({"softmax_temperature": 2.0, "random_steps": 51}, uniform),
]


def sarsa(moments: list[Moment], time: int, gamma: float, chances: Any, noise: tuple[int, ...]) -> float:
    """Return the target of one step that is followed by another."""
    moment = moments[time]
    after = moments[time + 1]
    if moment.terminated:
        return moment.reward
    values = row(moment.next_obs, *noise[1:2])
    by = row(moment.next_obs, *noise[2:])
    if moment.truncated or not after.valid:
        return moment.reward + gamma * sum(chance * one for chance, one in zip(chances(by), values, strict=True))
    return moment.reward + gamma * values[after.obs % ACTIONS]


@pytest.mark.parametrize(("options", "chances"), WAYS, ids=["epsilon", "softmax", "random_steps"])
@settings(max_examples=60, deadline=None)
@given(story=STORIES, gamma=GAMMAS, noise=NOISES)
def test_vsarsa_uses_the_next_action(
    options: dict[str, Any], chances: Any, story: Story, gamma: float, noise: tuple[int, ...]
) -> None:
    """After a truncation, which has no next action, it uses the expected value of the policy."""
    rollouts = rollouts_of(make_learner("vsarsa", "Bandit", {"gamma": gamma, **options}), story, noise)
    assert len(rollouts) == len(story) - 1
    for time, (obs, weight, targets) in enumerate(rollouts):
        for number, moments in enumerate(story.moments):
            assert weight[0, number] == moments[time].valid
            assert obs[0, number] == moments[time].obs
            if moments[time].valid:
                expected = sarsa(moments, time, gamma, chances, noise)
                assert targets[0, number] == pytest.approx(expected, rel=1e-4, abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(stories(st.just(6)), st.integers(1, 5))
def test_pair_buffer_resumes_with_its_held_step(story: Story, stop: int) -> None:
    """After a restart nothing follows the held step."""
    whole = PairBuffer()
    first = PairBuffer()
    resumed = PairBuffer()
    for time, step in enumerate(story.steps()):
        if time == stop:
            resumed.load_state_dict(first.state_dict())
        for buffer in (whole, first if time < stop else resumed):
            buffer.add(step)
        theirs, ours = (tuple(each.batches(Clock(1))) for each in (whole, first if time < stop else resumed))
        assert len(theirs) == len(ours) == (time > 0)
        for one, other in zip(theirs, ours, strict=True):
            for name in ("obs", "action", "reward", "terminated", "truncated", "weight"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            np.testing.assert_array_equal(one.extras["next_action"], other.extras["next_action"])
    resumed.restart()
    resumed.add(next(story.steps()))
    (last,) = resumed.batches(Clock(1))
    assert (last.terminated | last.truncated).all()
    assert not (last.terminated & last.truncated).any()
    assert last.terminated[0].tolist() == [moments[-1].terminated for moments in story.moments]


ERRORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"mse": lambda error: error**2, "huber": huber}


@pytest.mark.parametrize("loss", ERRORS)
@pytest.mark.parametrize("name", ONLINE)
def test_loss_and_gradient_equal_the_reference(make_learner: Callable[..., Any], name: str, loss: str) -> None:
    """The weighted error row by row, squared by default; the targets are plain numbers."""
    said = {"loss": loss} if loss == "huber" else {}
    learner = make_learner(name, "Chain", **{"net.hidden": [16], "dueling": True}, **said)
    rows = 6
    weight = torch.tensor([1.0, 0.0, 0.25, 2.0, 1.0, 0.0])
    obs = torch.eye(5)[torch.arange(rows) % 5]
    action = torch.arange(rows) % 2
    target = 3 * torch.randn(rows)
    batch = samples(obs, action, target, weight)
    actual = learner.loss(batch, None, learner.config)[0]
    errors = [ERRORS[loss](learner.q_network(obs[i : i + 1])[0, action[i]] - float(target[i])) for i in range(rows)]
    expected = torch.stack([w * error for w, error in zip(weight, errors, strict=True)]).sum() / 4
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(each, learner.optimizers[0].parameters) for each in (actual, expected)]
    for got, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def samples(obs: Any, action: Any, target: Any, weight: Any) -> Any:
    return Samples(weight, None, obs, action, target, target, {})


DOUBLE = pytest.mark.parametrize(
    ("name", "switches"), [*((name, {}) for name in ONLINE), ("nstep-q", {"double": True})], ids=[*ONLINE, "double"]
)
#: Options that make a rollout of one step.
ONE = {"vqn": {}, "vsarsa": {}, "nstep-q": {"n_steps": 1}}


def rollout_of_steps_like(learner: Any, step: Step) -> Rollout:
    """Return the first rollout of a learner's buffer."""
    buffer = learner.buffer()
    while True:
        buffer.add(step)
        for rollout in buffer.batches(Clock(100)):
            return rollout  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["factorized", "independent"])
@DOUBLE
def test_update_draws_noise_for_each_use_of_a_network(
    make_learner: Callable[..., Any], name: str, switches: dict[str, bool], kind: str
) -> None:
    """From the learner's generator in this order: the learning values, the next values, the choice there."""
    learner = make_learner(name, "Chain", noisy=kind, noisy_sigma=2.0, dueling=True, gamma=0.5, **ONE[name], **switches)
    target = learner.target_network if name == "nstep-q" else learner.q_network
    if name == "nstep-q":
        scatter(learner)
    state = learner.generator.bit_generator.state
    noise = [torch.from_numpy(learner.q_network.draw(learner.generator)) for _ in range(3)]
    learner.generator.bit_generator.state = state
    action = np.array([0, 1, 0, 1, 0])
    reward = np.arange(5, dtype=np.float32)
    eye = np.eye(5, dtype=np.float32)
    never = np.zeros(5, bool)
    step = Step(eye, action, reward, eye[::-1].copy(), never, ~never, never, ~never, True, {}, None)
    with torch.no_grad():
        now = learner.q_network(torch.eye(5), noise[0])
        after = target(torch.eye(5).flip(0), noise[1])
        by = learner.q_network(torch.eye(5).flip(0), noise[2]) if switches or name == "vsarsa" else after
    squares = [float(reward[i] + 0.5 * after[i, by[i].argmax()] - now[i, action[i]]) ** 2 for i in range(5)]
    result = learner.update(rollout_of_steps_like(learner, step), Clock(100))
    assert float(result.metrics["loss/value"]) == pytest.approx(sum(squares) / 5, rel=1e-4)


def test_plain_network_draws_nothing(make_learner: Callable[..., Any]) -> None:
    """So its random numbers do not depend on the option for noise."""
    for name in ONLINE:
        learner = make_learner(name, "Chain", **ONE[name])
        never = np.zeros(5, bool)
        state = learner.generator.bit_generator.state
        eye = np.eye(5, dtype=np.float32)
        step = Step(eye, np.zeros(5, np.int64), eye[0], eye, never, never, never, ~never, False, {}, None)
        learner.update(rollout_of_steps_like(learner, step), Clock(100))
        assert learner.generator.bit_generator.state == state


#: The same values in all states.
BIASED: dict[str, Any] = {"net.hidden": []}


def bias(learner: Any) -> None:
    """Set three actions to values of 2, 10 and 30 in all networks."""
    for network in learner.modules():
        if hasattr(network, "bias"):
            with torch.no_grad():
                network.weight.zero_()
                network.bias.copy_(torch.tensor([2.0, 10.0, 30.0]))


@DOUBLE
def test_truncation_without_legal_actions_keeps_its_value(
    make_learner: Callable[..., Any], name: str, switches: dict[str, bool]
) -> None:
    """It bootstraps from the values of all actions, 2, 10 and 30, not from the value of a forbidden one."""
    learner = make_learner(
        name,
        "Masked",
        exploration_initial_eps=0.5,
        exploration_final_eps=0.5,
        gamma=0.5,
        **BIASED,
        **ONE[name],
        **switches,
    )
    bias(learner)
    never = np.zeros(2, bool)
    mask = np.array([[0, 0, 0], [1, 1, 0]], np.int8)
    obs = {"obs": np.zeros((2, 3), np.float32), "action_mask": mask}
    step = Step(obs, np.zeros(2, np.int64), np.ones(2), obs, never, ~never, never, ~never, True, {}, None)
    expected = [1 + 0.5 * 30, 1 + 0.5 * 10]
    if name == "vsarsa":
        expected = [1 + 0.5 * (30 + 14) / 2, 1 + 0.5 * (10 + 6) / 2]
    assert targets_of(learner, rollout_of_steps_like(learner, step), Clock(100)).tolist() == [pytest.approx(expected)]


@DOUBLE
def test_forbidden_actions_are_no_successors(
    make_learner: Callable[..., Any], name: str, switches: dict[str, bool]
) -> None:
    """Only action 0 is legal next, for all values of the others."""
    learner = make_learner(name, "Masked", exploration_initial_eps=0.5, exploration_final_eps=0.5, **BIASED, **switches)
    bias(learner)
    obs = {"obs": np.zeros((4, 3), np.float32), "action_mask": np.array([[1, 0, 0]] * 4, np.int8)}
    values = learner.predict_q(obs, None)
    if name == "vsarsa":
        value = learner.explorer.expected(values, values, Clock(100))
    elif name == "vqn":
        value = values.max(-1)
    else:
        later = learner.predict_target_q(obs, None)
        value = of_action(later, (values if learner.config.double else later).argmax(-1))
    assert value == pytest.approx([2.0] * 4)


@for_each("way", [{}, {"softmax_temperature": 1.0}, {"noisy": "factorized", "random_steps": 50}])
@for_each("name", ONLINE)
def test_tries_only_legal_actions(train_runner: Callable[..., Any], name: str, way: dict[str, Any]) -> None:
    """Masked raises at a forbidden action."""
    runner = train_runner(
        name, "Masked", runner="sync", num_envs=4, total_timesteps=400, exploration_final_eps=0.5, **way
    )
    assert runner.clock.updates > 10


@for_each("name", ONLINE)
@for_each("env", ["Chain", "Truncated", "Masked"])
def test_one_inline_worker_equals_sync(train_runner: Callable[..., Any], name: str, env: str) -> None:
    options = {"num_envs": 2, "total_timesteps": 500, "learning_rate": 1e-2}
    sync = train_runner(name, env, runner="sync", **options)
    inline = train_runner(name, env, runner="async", inline=True, workers=1, **options)
    assert torch.equal(sync.snapshot().optimizers[0].flat, inline.snapshot().optimizers[0].flat)
    assert sync.clock.updates == inline.clock.updates > 20
    assert [e for *_, e in sync.episodes()] == [e for *_, e in inline.episodes()]


def test_workers_share_one_target_network(train_runner: Callable[..., Any]) -> None:
    """It holds the last copy of the first worker, not the current weights; all workers see the same memory."""
    runner = train_runner(
        "nstep-q",
        "Chain",
        inline=True,
        workers=3,
        num_envs=2,
        n_steps=2,
        target_update_interval=5,
        total_timesteps=12 * 6,
        learning_rate=0.01,
    )
    targets = [worker.learner.target_network for worker in runner.workers]
    assert [worker.clock.updates for worker in runner.workers] == [6, 6, 6]
    for one, *others in zip(*(target.parameters() for target in targets), strict=True):
        assert {other.data_ptr() for other in others} == {one.data_ptr()}
        assert not one.requires_grad
    first = runner.workers[0].learner
    target = targets[0]
    runner.workers[1].learner.update(rollout_of(runner.workers[1]), Clock(100, 0, 4))
    before = [parameter.clone() for parameter in target.parameters()]
    first.update(rollout_of(runner.workers[0]), Clock(100, 0, 4))
    after = list(target.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    for copied, online in zip(after, first.q_network.parameters(), strict=True):
        assert torch.equal(copied, online)


def rollout_of(worker: Any) -> Rollout:
    """Return the worker's next rollout."""
    while True:
        step = worker.actor.step()
        worker.actor.buffer.add(step)
        for batch in worker.actor.buffer.batches(worker.clock):
            return batch  # type: ignore[no-any-return]


def test_worker_processes_share_one_target_network() -> None:
    """It is in shared memory: the second worker, which never copies, and the parent see it move."""
    options = {
        "workers": 2,
        "num_envs": 2,
        "n_steps": 2,
        "target_update_interval": 5,
        "learning_rate": 0.01,
        "total_timesteps": 10**9,
    }
    runner = make_runner(WATCHED, "Chain", options)
    before = [parameter.clone() for parameter in runner.master.target_network.parameters()]
    deadline = monotonic() + PATIENCE
    assert all(parameter.is_shared() for parameter in runner.master.target_network.parameters())

    def poll() -> None:
        assert monotonic() < deadline, "a worker never saw the target move"
        seen = [any(each["target/moved"] for each in runner.reported.get(rank, ())) for rank in range(2)]
        runner.clock.stop = all(seen)

    try:
        runner.run(poll)
    finally:
        runner.close()
    assert any(
        not torch.equal(old, new) for old, new in zip(before, runner.master.target_network.parameters(), strict=True)
    )


def test_only_the_first_worker_copies(train_runner: Callable[..., Any]) -> None:
    runner = train_runner(
        "nstep-q",
        "Chain",
        inline=True,
        workers=2,
        n_steps=2,
        target_update_interval=5,
        total_timesteps=8,
        learning_rate=0.01,
    )
    target = runner.workers[0].learner.target_network
    before = [parameter.clone() for parameter in target.parameters()]
    runner.workers[1].learner.update(rollout_of(runner.workers[1]), Clock(100, 0, 4))
    assert all(torch.equal(old, new) for old, new in zip(before, target.parameters(), strict=True))


def final_epsilons(learner: Any, workers: int) -> list[float]:
    """Return the final epsilon of the agent of each worker."""
    return [round(learner.agent(rank, workers).epsilon(1.0), 6) for rank in range(workers)]


def test_workers_have_the_epsilons_of_the_paper(make_learner: Callable[..., Any]) -> None:
    """Of 10 workers 4, 3 and 3 have 0.1, 0.01 and 0.5; three workers have one each."""
    for seed in range(20):
        learner = make_learner("nstep-q", "Chain", seed=seed)
        assert len(set(final_epsilons(learner, 2))) == 2
        assert set(final_epsilons(learner, 3)) == {0.1, 0.01, 0.5}
        assert Counter(final_epsilons(learner, 10)) == {0.1: 4, 0.01: 3, 0.5: 3}
        assert Counter(final_epsilons(learner, 100)) == {0.1: 40, 0.01: 30, 0.5: 30}
        assert final_epsilons(learner, 9) == final_epsilons(make_learner("nstep-q", "Chain", seed=seed), 9)


def test_first_epsilon_is_random() -> None:
    """The synchronous runner has one worker; over many seeds its epsilons are those of the paper."""
    counts = Counter(next(take_turns([0.4, 0.3, 0.3], np.random.default_rng(seed))) for seed in range(4000))
    assert [counts[which] / 4000 for which in range(3)] == pytest.approx([0.4, 0.3, 0.3], abs=0.03)


def test_all_workers_reach_their_epsilon_at_the_same_time(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("nstep-q", "Chain", exploration_initial_eps=0.9, exploration_fraction=0.4)
    for rank, end in enumerate(final_epsilons(learner, 6)):
        epsilon = learner.agent(rank, 6).epsilon
        epsilons = [epsilon(progress) for progress in (0.0, 0.2, 0.4, 0.7)]
        assert epsilons == pytest.approx([0.9, (0.9 + end) / 2, end, end])


def test_workers_end_alike_by_default(make_learner: Callable[..., Any]) -> None:
    assert set(final_epsilons(make_learner("nstep-q", "Chain", exploration_final_eps_others=[]), 20)) == {0.1}
