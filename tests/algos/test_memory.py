"""Algorithms with `--memory`: updates compared with a memory without a fast form, and tasks of recall."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlplug_core as rl
from rlplug_core.batches import Rollout
from rlplug_core.clock import Clock
from rlplug_core.export.agent import ProgramAgent
from rlplug_core.export.flat import Flat
from rlplug_core.export.greedy import greedy
from rlplug_core.export.program import Program, trace
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array, Timestep
from tests.algos.memories import Slow, Steered
from tests.reference.memory import Random

RANDOM = f"{Random.__module__}:{Random.__name__}"
STEERED = f"{Steered.__module__}:{Steered.__name__}"
SLOW = f"{Slow.__module__}:{Slow.__name__}:units=5"
#: Short rollouts, with several minibatches if possible.
ROLLOUTS: dict[str, dict[str, Any]] = {
    "ppo": {"batch_size": 16, "n_epochs": 2},
    "a2c": {"learning_rate": 1e-2},
    "impala": {"learning_rate": 1e-2},
    "appo": {"batch_size": 16, "n_epochs": 2, "target_update_interval": 1},
    "trpo": {"batch_size": 16, "n_critic_updates": 2, "sub_sampling_factor": 2},
}
REPLAY = {"a2c": {"replay_ratio": 1.0}}


def rollouts(learner: Any, count: int) -> Iterator[tuple[Rollout, Clock]]:
    """Yield `count` rollouts of three rows with ends, truncations and absent rows."""
    buffer = learner.buffer()
    actor = Actor(Random(3), learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    while count > 0:
        step = actor.step()
        buffer.add(step)
        for rollout in buffer.batches(actor.clock):
            count -= 1
            yield rollout, actor.clock


@pytest.mark.parametrize("algorithm", ROLLOUTS)
def test_updates_equal_a_memory_in_loops(make_learner: Callable[..., Any], algorithm: str) -> None:
    """Weights are equal up to rounding after four updates on rollouts that start within episodes."""
    options = {"n_steps": 8, "net.hidden": [6], **ROLLOUTS[algorithm], **REPLAY.get(algorithm, {})}
    learner, slow = (make_learner(algorithm, RANDOM, memory=words, **options) for words in ("gru:units=5", SLOW))
    before = [parameter.clone() for parameter in learner.parameters()]
    for rollout, clock in rollouts(learner, 4):
        learner.update(rollout, clock)
        slow.update(rollout, clock)
    for old, ours, theirs in zip(before, learner.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert not torch.equal(old, ours), "it was never trained"


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "appo"])
def test_unchanged_policy_gives_the_log_probs_of_its_actions(make_learner: Callable[..., Any], algorithm: str) -> None:
    """A rollout starts with the memory of its actor; otherwise V-trace would weigh on-policy samples."""
    options = {"n_steps": 8, "net.hidden": [6], **ROLLOUTS[algorithm], **REPLAY.get(algorithm, {})}
    learner = make_learner(algorithm, RANDOM, memory="gru:units=5", **options)
    for rollout, _ in rollouts(learner, 4):
        log_probs = rl.log_probs(rollout, learner.policy, None)  # type: ignore[arg-type]
        valid = rollout.weight > 0
        np.testing.assert_allclose(log_probs[valid], rollout.extras["log_prob"][valid], atol=1e-5)


#: Short sequences, and updates after every eight steps.
SEQUENCES: dict[str, Any] = {
    "net.hidden": [6, 6], "batch_size": 16, "sequence_length": 4, "burn_in": 2, "n_step": 2, "learning_starts": 40,
    "train_freq": 8, "random_steps": 0, "learning_rate": 1e-2, "critic_learning_rate": 1e-2, "num_envs": 2,
}  # fmt: skip


#: The same for action values.
OF_VALUES = {
    **{name: value for name, value in SEQUENCES.items() if name != "critic_learning_rate"},
    "target_update_interval": 1,
    "tau": 0.5,
    "double": True,
}


#: Options of each algorithm of action values; all ways to explore and all kinds of last layers.
VALUES: dict[str, dict[str, Any]] = {
    "dqn": {"noisy": "independent"},
    "c51": {"n_atoms": 7, "noisy": "factorized", "dueling": True, "double": False},
    "qrdqn": {"n_quantiles": 5, "softmax_temperature": 0.5},
    "iqn": {"n_quantiles": 3, "n_target_quantiles": 4, "n_acting_quantiles": 5, "noisy": "factorized"},
}


#: Critics with their own layers, and so with their own memory.
OWN = {"critic_net.hidden": [7, 5]}


@pytest.mark.parametrize("algorithm", ["sac", "td3", "sac-own", "td3-own", *VALUES])
def test_replay_updates_equal_a_memory_in_loops(make_learner: Callable[..., Any], algorithm: str) -> None:
    """Sequences of two rows with truncations; the policy's loss does not train the memory of the critics."""
    env = STEERED
    kind = Steered
    options = SEQUENCES
    if algorithm.endswith("-own"):
        algorithm = algorithm.removesuffix("-own")
        options = {**SEQUENCES, **OWN}
    if algorithm in VALUES:
        env = RANDOM
        kind = Random
        options = {**OF_VALUES, **VALUES[algorithm]}
    learner, slow = (make_learner(algorithm, env, memory=words, **options) for words in ("gru:units=5", SLOW))
    before = [parameter.clone() for parameter in learner.parameters()]
    buffer = learner.buffer()
    actor = Actor(kind(2), learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    updates = 0
    while updates < 5:
        buffer.add(actor.step())
        for batch in buffer.batches(actor.clock):
            assert torch.equal(batch.weight.view(7, 4)[2:6] > 0, batch.extras["valid"].view(7, 4)[2:6])
            assert not batch.weight.view(7, 4)[[0, 1, 6]].any()
            learner.update(batch, actor.clock)
            slow.update(batch, actor.clock)
            actor.clock.updates += 1
            updates += 1
    for old, ours, theirs in zip(before, learner.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert not torch.equal(old, ours), "it was never trained"


def test_dqn_with_memory_equals_r2d2_without_extras(make_learner: Callable[..., Any]) -> None:
    """The same network, sequences and priorities; its squared error is twice R2D2's."""
    shared = {**OF_VALUES, "dueling": True, "priority.alpha": 0.6}
    dqn = make_learner("dqn", RANDOM, memory="gru:units=5", loss="mse", **shared)
    r2d2 = make_learner("r2d2", RANDOM, memory="gru:units=5", rescale_values=False, **{**shared, "batch_size": 4})
    dqn.load_state_dict(r2d2.state_dict(), strict=True)
    buffer = dqn.buffer()
    actor = Actor(Random(2), dqn, dqn.agent(), buffer, Clock(10**6))
    actor.reset(3)
    batches = 0
    while batches < 3:
        buffer.add(actor.step())
        for batch in buffer.batches(actor.clock):
            batches += 1
            ours, _, errors = dqn.loss(batch, [None] * 3, dqn.config)
            theirs, _, others = r2d2.loss(batch, r2d2.td_target(batch, r2d2.config), r2d2.config)
            torch.testing.assert_close(ours, 2 * theirs)
            torch.testing.assert_close(errors, others.abs())
            priorities = [learner.update(batch, actor.clock).priority for learner in (dqn, r2d2)]
            assert priorities[0].shape == (4,)
            torch.testing.assert_close(*priorities)
            dqn.load_state_dict(r2d2.state_dict())
            buffer.feedback(batch, rl.Result({}, priority=priorities[0]))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("algorithm", VALUES)
def test_sequence_loss_equals_the_loss_of_transitions_between_memories(
    make_learner: Callable[..., Any], algorithm: str, double: bool
) -> None:
    """The network's observation is the output of the memory; with ends and windows of two steps."""
    options = {**OF_VALUES, **VALUES[algorithm], "double": double, "priority.alpha": 0.6}
    learner = make_learner(algorithm, RANDOM, memory="gru:units=5", **options)
    generator = torch.Generator().manual_seed(1)
    for parameter in learner.target_network.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator))
    learner.target_network.memory.load_state_dict(learner.q_network.memory.state_dict())  # one memory, so one next_obs
    learner.target_network.encoder.load_state_dict(learner.q_network.encoder.state_dict())
    plain = copy.deepcopy(learner)
    plain.q_network = plain.q_network.q_network
    plain.target_network = plain.target_network.q_network
    buffer = learner.buffer()
    actor = Actor(Random(2), learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    batches = 0
    while batches < 3:
        buffer.add(actor.step())
        for batch in buffer.batches(actor.clock):
            batches += 1
            along = learner.q_network.along(batch, 0)
            features = along["h"].detach(), learner.q_network.following(batch, along)["h"].detach()
            flat = replace(batch, obs=features[0], next_obs=features[1], share=batch.counts)
            noise = learner.q_network.noise(np.random.default_rng(batches), 3)
            fractions = torch.rand(len(batch.weight), 7, generator=generator).split([3, 4], 1)
            arguments = (noise, *([fractions] if algorithm == "iqn" else []), learner.config)
            ours = learner.loss(batch, *arguments)
            torch.testing.assert_close(ours, plain.loss(flat, *arguments))
            buffer.feedback(batch, rl.Result({}, priority=rl.replay_priority(batch, ours[2])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"her": 4}, r"her replays single transitions, and a memory needs sequences"),
        ({"priority.alpha": 0.5, "priority.eviction": "sampled"}, r"leave priority.eviction at oldest"),
    ],
)
def test_options_that_conflict_with_memory_raise(
    make_learner: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    def parts() -> None:
        learner = make_learner("dqn", RANDOM, memory="gru", **options)
        learner.agent()
        learner.buffer()

    with pytest.raises(rl.UsageError, match=message):
        parts()


def test_features_of_sequences_equal_those_of_the_actor(make_learner: Callable[..., Any]) -> None:
    """From the stored state on, at every step and after every n-step window, with constant weights."""
    learner = make_learner("sac", STEERED, memory="gru:units=5", **SEQUENCES)
    buffer = learner.buffer()
    actor = Actor(Steered(2), learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    seen = []
    for _ in range(60):
        step = actor.step()
        buffer.add(step)
        seen.append((actor.recurrent_state["h"].copy(), step.truncated | step.terminated, step.valid.copy()))
    starts = [(time, row) for time in range(0, 40, 2) for row in range(2)]
    batch = buffer.gather(np.array([2 * time + row for time, row in starts]))
    trunk = learner.critics.trunk
    states = trunk.obs(batch).detach().unflatten(0, (7, 40))
    following = trunk.next_obs(batch).unflatten(0, (7, 40))
    compared = 0
    for column, (time, row) in enumerate(starts):
        for step in range(6):
            state, ended, valid = (part[row] for part in seen[time + step])
            if valid:
                np.testing.assert_allclose(states[step, column], state, atol=1e-5)
            last = time + step + int(not ended)  # of its window of two steps
            there = seen[last][2][row] and seen[last + 1][2][row] and not seen[last][1][row]
            if 2 <= step < 6 and valid and there:
                np.testing.assert_allclose(following[step, column], seen[last + 1][0][row], atol=1e-5)
                compared += 1
    assert compared > 20


class RecordsObs(Steered):
    """Records the observations of the critic and of the policy."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        parts = {"part": spaces.Box(-1, 1, (2,), np.float32), "all": spaces.Box(-1, 1, (3,), np.float32)}
        self.spec = replace(self.spec, obs=spaces.Dict(parts))

    def reset(self, seed: int) -> Timestep:
        return self.split(super().reset(seed))

    def step(self, action: Array) -> Timestep:
        return self.split(super().step(action))

    def split(self, now: Timestep) -> Timestep:
        obs, final = ({"part": one[:, :2], "all": one} for one in (now.obs, now.final_obs))
        return replace(now, obs=obs, final_obs=final)


SEEN = f"{__file__}:RecordsObs"


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_critics_have_their_own_keys_layers_and_memory(make_learner: Callable[..., Any], algorithm: str) -> None:
    """Each loss trains its own memory. The memory of the critics starts empty, that of the policy with the actor's."""
    keys = {**OWN, "net.obs": ["part"], "critic_net.obs": ["all"]}
    learner = make_learner(algorithm, SEEN, memory="gru:units=5", **{**SEQUENCES, **keys})
    critic, policy = learner.critics.trunk, learner.policy.trunk
    assert critic.encoder.encoder.features == 7
    assert set(learner.agent().weights()) >= {f"trunk.{name}" for name in policy.state_dict()}
    buffer, agent = learner.buffer(), learner.agent()
    actor = Actor(RecordsObs(2), learner, agent, buffer, Clock(10**6))
    actor.reset(3)
    while buffer.count < 40:
        buffer.add(actor.step())
    batch = buffer.draw(4, Clock(1))
    steps, rows = 7, 4
    first = batch.extras["is_first"].view(steps, rows)
    valid = batch.extras["valid"].view(steps, rows)
    for trunk, key, before in ((critic, "all", torch.zeros(rows, 5)), (policy, "part", batch.recurrent_state["h"])):
        for step in range(steps):
            before = before.masked_fill(first[step][:, None], 0.0)
            features = trunk.encoder({key: batch.obs[key].view(steps, rows, -1)[step]})
            after = trunk.memory.step(features, {"h": before})["h"]
            before = after.where(valid[step][:, None], before)
            torch.testing.assert_close(trunk.obs(batch).view(steps, rows, 5)[step], before)
    now = learner.config
    noise = torch.zeros(len(batch.action), 2)
    losses = [learner.critic_loss(batch, noise, now)[0]]
    with learner.fixed_critics:
        losses.append(learner.policy_loss(batch, noise, now)[0] if algorithm == "sac" else learner.policy_loss(batch))
    trained = []
    for loss in losses:
        learner.zero_grad()
        loss.backward()
        trained.append(
            [
                parameter.grad is not None and bool(parameter.grad.any())
                for parameter in (critic.memory.cell.weight_ih, policy.memory.cell.weight_ih)
            ]
        )
    assert trained == [[True, False], [False, True]]


def test_export_of_a_trunk_acts_as_its_agent(make_learner: Callable[..., Any]) -> None:
    """The memory is an input and an output of the program."""
    learner = make_learner("sac", STEERED, memory="gru:units=5", **SEQUENCES)
    agent = learner.agent()
    flat = Flat(greedy(learner.agent()), learner.spec.obs)
    exported = ProgramAgent(Program(*trace(flat, flat.example(), flat.names)), flat.memory)
    ours, theirs = agent.initial(3), exported.initial(3)
    generator = np.random.default_rng(0)
    for _ in range(6):
        obs = generator.normal(size=(3, 3)).astype(np.float32)
        first = generator.random(3) < 0.3
        one = agent.act(obs, first, ours, Clock(1), explore=False)
        other = exported.act(obs, first, theirs, Clock(1))
        ours, theirs = one.recurrent_state, other.recurrent_state
        np.testing.assert_allclose(one.action, other.action, atol=1e-5)


class Echo(Vector):
    """Rewards -(a - x)² for the previous x in [-1, 1]: the best return is 0 with a memory, and -8/3 without."""

    obs = spaces.Box(-1, 1, (1,), np.float32)
    action = spaces.Box(-1, 1, (1,), np.float32)

    def open(self, rows: Array) -> None:
        for name in ("now", "before"):
            self.state.setdefault(name, np.zeros(self.num_envs))[rows] = 0.0

    def observe(self) -> Array:
        return self.state["now"][:, None].astype(np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward = -np.square(action[:, 0] - self.state["before"])
        self.state["before"] = self.state["now"]
        self.state["now"] = self.generator.uniform(-1, 1, self.num_envs)
        return reward, np.zeros(self.num_envs, np.bool_), self.state["length"] + 1 >= 10


@pytest.mark.slow
@pytest.mark.parametrize("own", [{}, {"critic_net.hidden": [32, 32]}], ids=["shared", "own"])
def test_sac_learns_to_repeat_the_previous_observation(train_runner: Callable[..., Any], own: dict[str, Any]) -> None:
    """With one memory for policy and critics, and with two."""
    runner = train_runner(
        "sac",
        f"{__file__}:Echo",
        memory="gru:units=32",
        sequence_length=8,
        burn_in=2,
        batch_size=128,
        gamma=0.5,
        num_envs=8,
        learning_starts=400,
        random_steps=400,
        train_freq=8,
        learning_rate=3e-3,
        critic_learning_rate=3e-3,
        total_timesteps=8_000,
        **{"net.hidden": [32, 32], **own},
    )
    assert evaluate(runner.snapshot().agent(), Echo(100), 1, Clock(1)).mean > -0.3
