"""Networks with memory, unrolled over rollouts: against one row and one step at a time, by the equations."""

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
from tests.reference.memory import Random, seen_by, slowly

CPU = torch.device("cpu")
SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4), 3, "Probe")
UNITS = 5
pytestmark = pytest.mark.usefixtures("seeded")


def network(cell: Any, spec: Spec = SPEC) -> RecurrentPolicyAndCritic:
    """With weights that are none of them 0."""
    made = RecurrentPolicyAndCritic(spec, Net((6,)), cell, UNITS)
    with torch.no_grad():
        for parameter in [*made.policy.parameters(), *made.critic.parameters()]:
            parameter.normal_(0, 0.7)
    return made


def random_case(cell: str) -> tuple[Cell, Tensor, Tensor, Tensor, Remembered]:
    """Eleven steps of three rows in double precision; episodes open and rows are absent anywhere."""
    memory = CELLS[cell](4, CellConfig(UNITS)).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.normal_()
    before = {part: torch.randn(3, UNITS).double().requires_grad_() for part in memory.parts}
    features = torch.randn(11, 3, 4).double().requires_grad_()
    return memory, features, torch.rand(11, 3) < 0.25, torch.rand(11, 3) < 0.8, before


def test_unrolled_is_one_step_after_the_other_in_each_row(cell: str) -> None:
    memory, features, first, valid, before = random_case(cell)
    found = memory.unroll(features.flatten(0, 1), first.flatten(), before, valid.flatten())
    expected = slowly(memory, features, first, valid, before)
    assert found.keys() == expected.keys()
    for part, steps in expected.items():
        torch.testing.assert_close(found[part].unflatten(0, (11, 3)), torch.stack([torch.stack(row) for row in steps]))


def test_gradients_go_back_through_time_and_end_where_an_episode_opens(cell: str) -> None:
    """Those of weights, of what was seen and of what was remembered at the beginning."""
    memory, features, first, valid, before = random_case(cell)
    found = memory.unroll(features.flatten(0, 1), first.flatten(), before, valid.flatten())["h"]
    steps = slowly(memory, features, first, valid, before)["h"]
    weight, inputs = torch.randn(33, UNITS).double(), [*memory.parameters(), features, *before.values()]
    expected = torch.stack([torch.stack(row) for row in steps]).flatten(0, 1)
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), inputs), torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs)


def test_without_absent_rows_nobody_has_to_say_so(cell: str) -> None:
    memory, features, first, _, before = random_case(cell)
    flat = features.flatten(0, 1), first.flatten(), before
    everywhere = memory.unroll(*flat, torch.ones(33, dtype=torch.bool))
    for part, found in memory.unroll(*flat).items():
        assert torch.equal(found, everywhere[part])


def test_weights_begin_orthogonal_and_the_gate_that_keeps_open(cell: str) -> None:
    """Where nothing is seen and nothing comes back, the share of what was remembered that is left is σ(1)."""
    memory = CELLS[cell](3, CellConfig(UNITS))
    weight = memory.cell.weight_hh.detach()
    torch.testing.assert_close(weight.T @ weight, torch.eye(UNITS))
    before = {part: torch.randn(1, UNITS) for part in memory.parts}
    with torch.no_grad():
        memory.cell.weight_hh.zero_()
        after = memory.step(torch.zeros(1, 3), before)
    last = memory.parts[-1]
    torch.testing.assert_close(after[last], torch.tensor(1.0).sigmoid() * before[last])


# Rollouts and those who act in them.


def actor_of(made: RecurrentPolicyAndCritic, env: Any, steps: int) -> Actor:
    """An actor whose buffer gives rollouts of so many steps."""
    agent = MemoryAgent(made.policy, Seeds(0), log_prob=True)
    actor = Actor(env, None, agent, RolloutBuffer(steps), Clock(10**6))  # type: ignore[arg-type]
    actor.reset(5)
    return actor


def rollouts(actor: Actor, count: int) -> Iterator[Rollout]:
    """So many, one after the other in the same memory."""
    while count:
        step = actor.step()
        actor.buffer.add(step)
        for rollout in actor.buffer.batches(actor.clock):
            count -= 1
            yield rollout


@pytest.mark.parametrize("absent", [0.0, 0.3])
@pytest.mark.parametrize("steps", [1, 4, 13])
def test_values_are_those_of_one_step_after_the_other(cell: str, steps: int, absent: float) -> None:
    """Of all that is bootstrapped: where the step is the last, or truncated, or goes on in a row that is there."""
    made = network(cell)
    cuts = 0
    for rollout in rollouts(actor_of(made, Random(3, absent), steps), 40 // steps):
        value, successor = recurrent_values(rollout, made, CPU)
        expected, following = seen_by(rollout, made)
        valid = rollout.weight > 0
        np.testing.assert_allclose(value[valid], expected[valid], atol=1e-5)
        last = np.arange(steps)[:, None] == steps - 1
        goes_on = np.zeros_like(valid)
        goes_on[:-1] = valid[1:] & ~rollout.is_first[1:]
        counts = valid & (rollout.truncated | last | goes_on) & ~rollout.terminated
        np.testing.assert_allclose(successor[counts], following[counts], atol=1e-5)
        cuts += rollout.truncations.count
        assert value.shape == successor.shape == (steps, 3)
    assert cuts or steps == 1


@pytest.mark.parametrize("steps", [3, 8])
def test_unrolled_states_equal_those_of_the_actor(cell: str, steps: int) -> None:
    """Rollouts begin in the middle of episodes; rows that are absent leave no trace in the memory of either."""
    made = network(cell)
    for rollout in rollouts(actor_of(made, Random(3), steps), 12):
        nothing = np.zeros((steps, 3), np.float32)
        batch = sequences(rollout, nothing, nothing, CPU)
        outputs, value = made(*batch.inputs)
        valid = batch.weight > 0
        found = made.policy.head.log_prob(outputs, batch.action)[valid]
        torch.testing.assert_close(found, batch.extras["log_prob"][valid], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            value[valid], torch.from_numpy(recurrent_values(rollout, made, CPU)[0]).flatten()[valid]
        )


def test_values_of_absent_rows_are_never_remembered(cell: str) -> None:
    """Two runs that differ in it act alike in all other rows, and see the same values there."""
    made = network(cell)
    one, other = (rollouts(actor_of(made, Random(3, filling=filling), 7), 6) for filling in (0.0, 9.0))
    for ours, theirs in zip(one, other, strict=True):
        valid = ours.weight > 0
        assert not np.array_equal(ours.obs, theirs.obs)
        for a, b in zip(
            [*recurrent_values(ours, made, CPU), ours.action],
            [*recurrent_values(theirs, made, CPU), theirs.action],
            strict=True,
        ):
            np.testing.assert_array_equal(a[valid], b[valid])


def test_an_episode_begins_without_memory(cell: str) -> None:
    """Whatever was seen before it; the other rows go on."""
    made = network(cell)
    agent, clock = MemoryAgent(made.policy, Seeds(0)), Clock(1)
    obs, first = np.full((3, 3), 0.5, np.float32), np.array([False, True, False])
    dirty = tree_map(lambda part: part + 7, agent.initial(3))
    kept, fresh = agent.act(obs, first, dirty, clock), agent.act(obs, ~first, agent.initial(3), clock)
    for part in made.policy.memory.parts:
        np.testing.assert_array_equal(kept.recurrent_state[part][1], fresh.recurrent_state[part][1])
        assert (kept.recurrent_state[part][[0, 2]] != fresh.recurrent_state[part][[0, 2]]).all()
        assert (dirty[part] == 7).all(), "what it was given is not its own to change"


def test_agents_of_one_network_remember_apart(cell: str) -> None:
    made = network(cell)
    one, other = MemoryAgent(made.policy, Seeds(0)), MemoryAgent(made.policy, Seeds(1))
    recurrent_state = one.initial(2)
    one.act(np.ones((2, 3), np.float32), np.zeros(2, bool), recurrent_state, Clock(1))
    for agent in (one, other):
        assert all(not part.any() for part in agent.initial(2).values())
    assert all(not part.any() for part in recurrent_state.values())


def test_evaluation_remembers_as_acting_does(cell: str) -> None:
    """Greedy episodes by hand, from the same seed."""
    made = network(cell, Spec(Recall.obs, Recall.action, 20, "Recall"))
    agent, env, clock = MemoryAgent(made.policy, Seeds(0)), Recall(20), Clock(1)
    now, recurrent_state, total = env.reset(3), agent.initial(20), np.zeros(20)
    for _ in range(Recall.length):
        act = agent.act(now.obs, now.is_first, recurrent_state, clock, explore=False)
        now, recurrent_state = env.step(act.action), act.recurrent_state
        total += now.reward
    assert evaluate(agent, Recall(20), 3, clock).returns == tuple(total)
    assert 0 < total.sum() < 20


def test_masks_hold_with_memory(cell: str) -> None:
    actor = actor_of(network(cell, Masked(8).spec), Masked(8), 4)
    for _ in range(50):
        step = actor.step()
        assert step.obs["action_mask"][np.arange(8), step.action].all()


def test_numpy_cannot_be_asked_for(cell: str) -> None:
    both = network(cell)
    for module in (both.policy, both.critic):
        with pytest.raises(
            UsageError, match="cannot compute a memory; leave --inference-backend at auto, or --memory at none"
        ):
            fast_forward(module, "numpy")
    with pytest.raises(UsageError, match="NumPy cannot compute a memory"):
        MemoryAgent(both.policy, Seeds(0), "numpy")


# Minibatches.


def numbered(steps: int = 4, num_envs: int = 5, whole: bool = True) -> Sequences:
    """Samples that say where they are from: 10 * step + row."""
    at = (10 * torch.arange(steps).unsqueeze(1) + torch.arange(num_envs)).flatten()
    number = at.float()
    recurrent_state = {"h": torch.arange(num_envs).float().unsqueeze(1)}
    weight = torch.ones(steps * num_envs)
    if not whole:
        weight[3] = 0
    return Sequences(
        weight, None, {"a": number.unsqueeze(1)}, at, number, -number, {"log_prob": number / 10}, at % 2 == 0,
        recurrent_state, None if whole else weight > 0,
    )  # fmt: skip


def test_rows_stay_whole_in_minibatches() -> None:
    """Of five rows two at a time: each row's steps in their order, with what it remembers; one row waits."""
    batch = numbered()
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


def test_one_minibatch_where_all_rows_fit() -> None:
    batch = numbered()
    assert next(batch.minibatches(20, np.random.default_rng(3))) is batch


def test_absent_rows_stay_absent_in_minibatches() -> None:
    for part in numbered(whole=False).minibatches(4, np.random.default_rng(3)):
        assert isinstance(part, Sequences)
        assert part.valid is not None
        assert torch.equal(part.valid, part.action != 3)
        torch.testing.assert_close(part.counts, part.weight / part.weight.sum())


def test_losses_of_minibatches_are_those_of_their_rows_alone(cell: str) -> None:
    made = network(cell)
    for rollout in rollouts(actor_of(made, Random(3), 6), 5):
        nothing = np.zeros((6, 3), np.float32)
        batch = sequences(rollout, nothing, nothing, CPU)
        outputs, value = (part.unflatten(0, (6, 3)) for part in made(*batch.inputs))
        chosen = torch.tensor([2, 0])
        found, seen = made(*batch.take(chosen).inputs)
        torch.testing.assert_close(found.unflatten(0, (6, 2)), outputs[:, chosen])
        torch.testing.assert_close(seen.unflatten(0, (6, 2)), value[:, chosen])
