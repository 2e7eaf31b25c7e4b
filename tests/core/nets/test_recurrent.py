"""Recurrent networks over rollouts, against their equations for one row and one step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlplug_core.acting.recurrent import MemoryAgent
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.memory_networks import RecurrentPolicyAndCritic, recurrent_values
from rlplug_core.nets.net import Net
from rlplug_core.nets.recurrent import CELLS, Cell, CellConfig, Remembered
from rlplug_core.nets.sequences import Sequences, sequences
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Masked, Recall
from rlplug_core.types import Spec, tree_map
from tests.reference.memory import Random, unroll_by_loops, values_by_loops

CPU = torch.device("cpu")
SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), 3, "Probe")
UNITS = 5
pytestmark = pytest.mark.usefixtures("seeded")


def network(cell: Any, spec: Spec = SPEC) -> RecurrentPolicyAndCritic:
    """Make a network without weights of 0."""
    both = RecurrentPolicyAndCritic(spec, Net((6,)), cell, UNITS)
    with torch.no_grad():
        for parameter in [*both.policy.parameters(), *both.critic.parameters()]:
            parameter.normal_(0, 0.7)
    return both


def random_case(cell: str) -> tuple[Cell, Tensor, Tensor, Tensor, Remembered]:
    """Draw eleven steps of three rows in double precision, with random starts of episodes and absent rows."""
    memory = CELLS[cell](4, CellConfig(UNITS)).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.normal_()
    before = {part: torch.randn(3, UNITS).double().requires_grad_() for part in memory.parts}
    features = torch.randn(11, 3, 4).double().requires_grad_()
    return memory, features, torch.rand(11, 3) < 0.25, torch.rand(11, 3) < 0.8, before


def test_unroll_equals_single_steps(cell: str) -> None:
    memory, features, first, valid, before = random_case(cell)
    found = memory.unroll(features.flatten(0, 1), first.flatten(), before, valid.flatten())
    expected = unroll_by_loops(memory, features, first, valid, before)
    assert found.keys() == expected.keys()
    for part, steps in expected.items():
        torch.testing.assert_close(found[part].unflatten(0, (11, 3)), torch.stack([torch.stack(row) for row in steps]))


def test_gradients_flow_through_time_within_an_episode(cell: str) -> None:
    """Gradients of weights, features and initial states."""
    memory, features, first, valid, before = random_case(cell)
    found = memory.unroll(features.flatten(0, 1), first.flatten(), before, valid.flatten())["h"]
    steps = unroll_by_loops(memory, features, first, valid, before)["h"]
    weight = torch.randn(33, UNITS).double()
    inputs = [*memory.parameters(), features, *before.values()]
    expected = torch.stack([torch.stack(row) for row in steps]).flatten(0, 1)
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_unroll_takes_all_rows_as_valid_by_default(cell: str) -> None:
    memory, features, first, _, before = random_case(cell)
    flat = features.flatten(0, 1), first.flatten(), before
    everywhere = memory.unroll(*flat, torch.ones(33, dtype=torch.bool))
    for part, found in memory.unroll(*flat).items():
        assert torch.equal(found, everywhere[part])


def test_initial_weights_are_orthogonal_and_the_forget_gate_is_open(cell: str) -> None:
    """Without input and recurrent weights, a fraction of σ(1) of the state remains."""
    memory = CELLS[cell](3, CellConfig(UNITS))
    weight = memory.cell.weight_hh.detach()
    torch.testing.assert_close(weight.T @ weight, torch.eye(UNITS))
    before = {part: torch.randn(1, UNITS) for part in memory.parts}
    with torch.no_grad():
        memory.cell.weight_hh.zero_()
        after = memory.step(torch.zeros(1, 3), before)
    last = memory.parts[-1]
    torch.testing.assert_close(after[last], torch.tensor(1.0).sigmoid() * before[last])


# Rollouts and actors.


def make_actor(both: RecurrentPolicyAndCritic, env: Any, steps: int) -> Actor:
    """Make an actor with a buffer of rollouts of this length."""
    agent = MemoryAgent(both.policy, Seeds(0), log_prob=True)
    actor = Actor(env, None, agent, RolloutBuffer(steps), Clock(10**6))  # type: ignore[arg-type]
    actor.reset(5)
    return actor


def rollouts(actor: Actor, count: int) -> Iterator[Rollout]:
    """Collect this many rollouts, which share their memory."""
    while count:
        step = actor.step()
        actor.buffer.add(step)
        for rollout in actor.buffer.batches(actor.clock):
            count -= 1
            yield rollout


@pytest.mark.parametrize("absent", [0.0, 0.3])
@pytest.mark.parametrize("steps", [1, 4, 13])
def test_recurrent_values_equal_single_steps(cell: str, steps: int, absent: float) -> None:
    """Successors' values are defined at the last step, at truncations, and if a valid row continues."""
    both = network(cell)
    cuts = 0
    for rollout in rollouts(make_actor(both, Random(3, absent), steps), 40 // steps):
        value, successor = recurrent_values(rollout, both, CPU)
        expected, following = values_by_loops(rollout, both)
        valid = rollout.weight > 0
        np.testing.assert_allclose(value[valid], expected[valid], atol=1e-5)
        last = np.arange(steps)[:, None] == steps - 1
        continues = np.zeros_like(valid)
        continues[:-1] = valid[1:] & ~rollout.is_first[1:]
        counts = valid & (rollout.truncated | last | continues) & ~rollout.terminated
        np.testing.assert_allclose(successor[counts], following[counts], atol=1e-5)
        cuts += rollout.truncations.count
        assert value.shape == successor.shape == (steps, 3)
    assert cuts or steps == 1


@pytest.mark.parametrize("steps", [3, 8])
def test_learner_states_equal_actor_states(cell: str, steps: int) -> None:
    """Rollouts start in the middle of episodes, and absent rows change no state."""
    both = network(cell)
    for rollout in rollouts(make_actor(both, Random(3), steps), 12):
        nothing = np.zeros((steps, 3), np.float32)
        batch = sequences(rollout, nothing, nothing, CPU)
        outputs, value = both(*batch.inputs)
        valid = batch.weight > 0
        found = both.policy.head.log_prob(outputs, batch.action)[valid]
        torch.testing.assert_close(found, batch.extras["log_prob"][valid], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.as_tensor(both.policy.outputs(rollout))[valid], outputs.detach()[valid])
        torch.testing.assert_close(
            value[valid], torch.from_numpy(recurrent_values(rollout, both, CPU)[0]).flatten()[valid]
        )


def test_absent_rows_change_no_state(cell: str) -> None:
    """Two runs with different absent rows have the same actions and values in all other rows."""
    both = network(cell)
    runs = [rollouts(make_actor(both, Random(3, filling=filling), 7), 6) for filling in (0.0, 9.0)]
    for ours, theirs in zip(*runs, strict=True):
        valid = ours.weight > 0
        assert not np.array_equal(ours.obs, theirs.obs)
        for a, b in zip(
            [*recurrent_values(ours, both, CPU), ours.action],
            [*recurrent_values(theirs, both, CPU), theirs.action],
            strict=True,
        ):
            np.testing.assert_array_equal(a[valid], b[valid])


def test_episode_starts_with_an_empty_state(cell: str) -> None:
    """The states of the other rows continue."""
    both = network(cell)
    agent = MemoryAgent(both.policy, Seeds(0))
    clock = Clock(1)
    obs = np.full((3, 3), 0.5, np.float32)
    first = np.array([False, True, False])
    dirty = tree_map(lambda part: part + 7, agent.initial(3))
    kept = agent.act(obs, first, dirty, clock)
    fresh = agent.act(obs, ~first, agent.initial(3), clock)
    for part in both.policy.memory.parts:
        np.testing.assert_array_equal(kept.recurrent_state[part][1], fresh.recurrent_state[part][1])
        assert (kept.recurrent_state[part][[0, 2]] != fresh.recurrent_state[part][[0, 2]]).all()
        assert (dirty[part] == 7).all(), "the agent changed its argument"


def test_agents_of_one_network_have_separate_states(cell: str) -> None:
    both = network(cell)
    agents = [MemoryAgent(both.policy, Seeds(seed)) for seed in (0, 1)]
    recurrent_state = agents[0].initial(2)
    agents[0].act(np.ones((2, 3), np.float32), np.zeros(2, bool), recurrent_state, Clock(1))
    for agent in agents:
        assert all(not part.any() for part in agent.initial(2).values())
    assert all(not part.any() for part in recurrent_state.values())


def test_evaluate_carries_the_recurrent_state(cell: str) -> None:
    """The returns equal those of a loop over greedy actions from the same seed."""
    both = network(cell, Spec(Recall.obs, Recall.action, 20, "Recall"))
    agent = MemoryAgent(both.policy, Seeds(0))
    env = Recall(20)
    clock = Clock(1)
    now = env.reset(3)
    recurrent_state = agent.initial(20)
    total = np.zeros(20)
    for _ in range(Recall.length):
        act = agent.act(now.obs, now.is_first, recurrent_state, clock, explore=False)
        now = env.step(act.action)
        recurrent_state = act.recurrent_state
        total += now.reward
    assert evaluate(agent, Recall(20), 3, clock).returns == tuple(total)
    assert 0 < total.sum() < 20


def test_recurrent_agent_respects_masks(cell: str) -> None:
    actor = make_actor(network(cell, Masked(8).spec), Masked(8), 4)
    for _ in range(50):
        step = actor.step()
        assert step.obs["action_mask"][np.arange(8), step.action].all()


def test_numpy_backend_refuses_recurrent_networks(cell: str) -> None:
    both = network(cell)
    for module in (both.policy, both.critic):
        with pytest.raises(
            UsageError, match="cannot compute a memory; leave --inference-backend at auto, or --memory at none"
        ):
            fast_forward(module, "numpy")
    with pytest.raises(UsageError, match="NumPy cannot compute a memory"):
        MemoryAgent(both.policy, Seeds(0), "numpy")


# Minibatches.


def numbered_sequences(steps: int = 4, num_envs: int = 5, valid: bool = True) -> Sequences:
    """Make samples with the number 10 * step + row."""
    at = (10 * torch.arange(steps).unsqueeze(1) + torch.arange(num_envs)).flatten()
    number = at.float()
    recurrent_state = {"h": torch.arange(num_envs).float().unsqueeze(1)}
    weight = torch.ones(steps * num_envs)
    if not valid:
        weight[3] = 0
    return Sequences(
        weight,
        None,
        {"a": number.unsqueeze(1)},
        at,
        number,
        -number,
        {"log_prob": number / 10},
        at % 2 == 0,
        recurrent_state,
        None if valid else weight > 0,
    )


def test_minibatches_contain_whole_rows() -> None:
    """Two of five rows at a time, with all steps in order and their states; the fifth row is left out."""
    batch = numbered_sequences()
    parts = list(batch.minibatches(8, np.random.default_rng(3)))
    used = [part.recurrent_state["h"].flatten().tolist() for part in parts]  # type: ignore[attr-defined]
    assert [len(rows) for rows in used] == [2, 2]
    assert len({row for rows in used for row in rows}) == 4
    for part, rows in zip(parts, used, strict=True):
        assert isinstance(part, Sequences)
        expected = (10 * torch.arange(4).unsqueeze(1) + torch.tensor(rows)).flatten()
        for found in (part.obs["a"].flatten(), part.action, part.advantage, -part.target, part.extras["log_prob"] * 10):
            torch.testing.assert_close(found.float(), expected)
        assert torch.equal(part.is_first, expected % 2 == 0)
        assert part.valid is None
        torch.testing.assert_close(part.counts, torch.full((8,), 1 / 8))


def test_minibatch_of_all_rows_is_the_batch() -> None:
    batch = numbered_sequences()
    assert next(batch.minibatches(20, np.random.default_rng(3))) is batch


def test_minibatches_keep_absent_rows_invalid() -> None:
    for part in numbered_sequences(valid=False).minibatches(4, np.random.default_rng(3)):
        assert isinstance(part, Sequences)
        assert part.valid is not None
        assert torch.equal(part.valid, part.action != 3)
        torch.testing.assert_close(part.counts, part.weight / part.weight.sum())


def test_outputs_of_minibatches_equal_those_of_the_batch(cell: str) -> None:
    both = network(cell)
    for rollout in rollouts(make_actor(both, Random(3), 6), 5):
        nothing = np.zeros((6, 3), np.float32)
        batch = sequences(rollout, nothing, nothing, CPU)
        outputs, value = (part.unflatten(0, (6, 3)) for part in both(*batch.inputs))
        chosen = torch.tensor([2, 0])
        found, seen = both(*batch.take(chosen).inputs)
        torch.testing.assert_close(found.unflatten(0, (6, 2)), outputs[:, chosen])
        torch.testing.assert_close(seen.unflatten(0, (6, 2)), value[:, chosen])
