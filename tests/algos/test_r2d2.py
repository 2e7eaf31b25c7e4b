"""R2D2: targets, loss and burn-in, compared with single rows and steps; and tasks of recall."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.learning.losses import rescaled, sequence_priority, unscaled
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.nets.recurrent import Remembered
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.testing.envs import LongRecall
from tests.reference.memory import Random, one_step

RANDOM = f"{Random.__module__}:{Random.__name__}"
SMALL: dict[str, Any] = {
    "sequence_length": 5, "burn_in": 3, "n_step": 3, "batch_size": 6, "learning_starts": 60, "train_freq": 3,
    "recurrent_hidden_size": 4, "net.hidden": [6, 5], "net.activation": "tanh", "max_grad_norm": 1e9, "gamma": 0.9,
}  # fmt: skip


@pytest.fixture(params=["gru", "lstm"])
def memory(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def batches(learner: Any, count: int, env: Any = None) -> list[Transitions]:
    """Return `count` batches of the learner's buffer while its agent acts at random between ends and absent rows."""
    buffer = learner.buffer()
    samples = []
    actor = Actor(env or Random(3), learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    while len(samples) < count:
        step = actor.step()
        buffer.add(step)
        samples += list(buffer.batches(actor.clock))
    return samples


def change_target(learner: Any) -> Any:
    """Make the target network differ from the online network, as after updates."""
    torch.manual_seed(3)
    with torch.no_grad():
        for one in learner.target_network.parameters():
            one.add_(0.3 * torch.randn_like(one))
    return learner


def memories_of(network: RecurrentQ, batch: Transitions, column: int, burn_in: int = 0) -> list[Remembered]:
    """Return the memories of a sequence after each step, by loops; the memory after `burn_in` steps is a constant."""
    count = len(batch.index)
    now = {part: one[column] for part, one in batch.recurrent_state.items()}
    states = []
    for place in range(column, len(batch.weight), count):
        if len(states) == burn_in:
            now = {part: one.detach() for part, one in now.items()}
        if batch.extras["is_first"][place]:
            now = {part: torch.zeros_like(one) for part, one in now.items()}
        if batch.extras["valid"][place]:
            now = one_step(network.memory, network.encoder(batch.obs[place : place + 1])[0], now)
        states.append(now)
    return states


def q_of(network: RecurrentQ, memory: Remembered) -> Tensor:
    """Return V + A - mean A, by the layers of both streams."""
    streams = []
    for stream in (network.q_network.advantage, network.q_network.value):
        assert stream is not None
        hidden = torch.tanh(stream.linears[0].weight @ memory["h"] + stream.linears[0].bias)
        streams.append(stream.linears[1].weight @ hidden + stream.linears[1].bias)
    return streams[1] + streams[0] - streams[0].mean()


def targets(learner: Any, batch: Transitions) -> dict[int, float]:
    """Return the target of each place after the burn-in."""
    by_place = {}
    count = len(batch.index)
    with torch.no_grad():
        for column in range(count):
            online, target = (memories_of(net, batch, column) for net in (learner.q_network, learner.target_network))
            for place in range(column, len(batch.weight), count):
                if batch.weight[place] == 0:
                    continue
                last = min(place // count + int(batch.extras["later"][place]), len(online) - 1)
                seen = batch.next_obs[place : place + 1]
                values = [
                    q_of(net, one_step(net.memory, net.encoder(seen)[0], kept[last]))
                    for net, kept in ((learner.q_network, online), (learner.target_network, target))
                ]
                following = float(values[1][values[0].argmax()])
                sign = np.sign(following)
                size = abs(following)
                e = 1e-3
                true = sign * (((np.sqrt(1 + 4 * e * (size + 1 + e)) - 1) / (2 * e)) ** 2 - 1)
                total = float(batch.reward[place]) + float(batch.discount[place]) * true
                by_place[place] = np.sign(total) * (np.sqrt(abs(total) + 1) - 1) + e * total
    return by_place


def reference(learner: Any, batch: Transitions, target: dict[int, float]) -> Tensor:
    """Return the loss, place by place."""
    losses = []
    count = len(batch.index)
    for column in range(count):
        kept = memories_of(learner.q_network, batch, column, learner.config.burn_in)
        for place in range(column, len(batch.weight), count):
            if place in target:
                q = q_of(learner.q_network, kept[place // count])[int(batch.action[place])]
                losses.append(0.5 * float(batch.weight[place]) * (target[place] - q) ** 2)
    return torch.stack(losses).sum() / len(losses)


def test_loss_and_gradient_equal_the_reference(make_learner: Callable[..., Any], memory: str) -> None:
    """Ends, truncations and absent rows in the window; gradients stop at the end of the burn-in."""
    learner = change_target(make_learner("r2d2", RANDOM, recurrent_cell=memory, **SMALL))
    seen = np.zeros(4)
    for batch in batches(learner, 4):
        td_targets = learner.td_target(batch, learner.config)
        slow = targets(learner, batch)
        places = sorted(slow)
        np.testing.assert_allclose(td_targets[places].numpy(), [slow[place] for place in places], rtol=1e-4, atol=1e-5)
        loss = learner.loss(batch, td_targets, learner.config)[0]
        wanted = reference(learner, batch, slow)
        torch.testing.assert_close(loss, wanted, rtol=1e-4, atol=1e-6)
        parameters = list(learner.q_network.parameters())
        pairs = zip(*(torch.autograd.grad(one, parameters) for one in (loss, wanted)), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
        counts = batch.weight > 0
        seen += [
            (batch.discount[counts] == 0).sum(),
            batch.extras["is_first"].sum(),
            (~batch.extras["valid"]).sum(),
            (batch.recurrent_state["h"].abs().sum(1) > 0).sum(),
        ]
    assert (seen > 0).all()


def test_burn_in_has_no_gradient(make_learner: Callable[..., Any]) -> None:
    """Its observations change the loss, but get no gradient; later ones do."""
    learner = make_learner("r2d2", RANDOM, **SMALL)
    (batch,) = batches(learner, 1, Random(3, absent=0.0))
    batch.obs.requires_grad_()
    target = learner.td_target(batch, learner.config)
    loss = learner.loss(batch, target, learner.config)[0]
    (slope,) = torch.autograd.grad(loss, batch.obs)
    size = slope.view(10, 6, -1).abs().sum((1, 2))
    assert (size[:3] == 0).all()
    assert (size[3:8] > 0).all()
    assert (size[8:] == 0).all()
    with torch.no_grad():
        other = batch.obs.clone()
        other[: 3 * 6] += 1
        batch.obs = other
    assert learner.loss(batch, target, learner.config)[0].item() != loss.item()


def test_sequences_start_with_the_memory_of_the_actor(make_learner: Callable[..., Any]) -> None:
    """With constant weights, unrolling from the stored memory gives the later memories of the actor."""
    learner = make_learner("r2d2", RANDOM, **{**SMALL, "sequence_period": 1})
    buffer = learner.buffer()
    actor = Actor(Random(3), learner, learner.agent(), buffer, Clock(10**6))
    actor.reset(3)
    kept = []
    for _ in range(30):
        step = actor.step()
        kept.append({part: one.copy() for part, one in step.recurrent_state.items()})
        buffer.add(step)
    batch = buffer.gather(np.arange(6, 18))
    with torch.no_grad():
        states = learner.q_network.along(batch, 3)
    for part in ("h", "c"):
        for t in range(9):
            expected = np.stack([kept[number // 3 + t + 1][part][number % 3] for number in range(6, 18)])
            after = states[part].view(10, 12, -1)[t].numpy()
            opens = np.stack([batch.extras["is_first"].view(10, 12)[t + 1].numpy()])
            np.testing.assert_allclose(after[~opens[0]], expected[~opens[0]], rtol=1e-4, atol=1e-5)


def test_sequence_priority_mixes_largest_and_mean_error() -> None:
    error = torch.tensor([[9.0, 1.0, 7.0], [-3.0, 2.0, 7.0], [1.0, -6.0, 7.0]])
    weight = torch.tensor([[0.0, 0.5, 0.0], [1.0, 0.5, 0.0], [1.0, 0.5, 0.0]])
    expected = [0.9 * 3 + 0.1 * 2, 0.9 * 6 + 0.1 * 3, 0.0]
    torch.testing.assert_close(sequence_priority(error, weight, 0.9), torch.tensor(expected))


def test_update_reports_the_priorities_of_its_sequences(make_learner: Callable[..., Any]) -> None:
    learner = change_target(make_learner("r2d2", RANDOM, **SMALL, priority_eta=0.6))
    (batch,) = batches(learner, 1)
    slow = targets(learner, batch)
    errors: dict[int, list[float]] = {column: [] for column in range(6)}
    with torch.no_grad():
        for place, target in slow.items():
            kept = memories_of(learner.q_network, batch, place % 6)
            q = q_of(learner.q_network, kept[place // 6])[int(batch.action[place])]
            errors[place % 6].append(abs(target - float(q)))
    expected = [0.6 * max(each) + 0.4 * float(np.mean(each)) if each else 0.0 for each in errors.values()]
    priority = learner.update(batch, Clock(100)).priority
    np.testing.assert_allclose(priority.numpy(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 50.0, 1e4])
def test_rescaling_and_its_inverse(size: float) -> None:
    """By the formula, and back."""
    for value in (size, -size):
        scaled = rescaled(torch.tensor(value))
        assert scaled.item() == pytest.approx(
            np.sign(value) * (np.sqrt(abs(value) + 1) - 1) + 1e-3 * value, rel=1e-4, abs=1e-6
        )
        assert unscaled(scaled).item() == pytest.approx(value, rel=1e-3, abs=1e-4)


def test_rescaling_can_be_disabled(make_learner: Callable[..., Any]) -> None:
    learner = change_target(make_learner("r2d2", RANDOM, **SMALL, rescale_values=False))
    (batch,) = batches(learner, 1)
    with torch.no_grad():
        values = [net.after(batch, net.along(batch, 0)) for net in (learner.q_network, learner.target_network)]
    next_q = values[1].gather(1, values[0].argmax(1, keepdim=True)).squeeze(1)
    torch.testing.assert_close(learner.td_target(batch, learner.config), batch.reward + batch.discount * next_q)


def test_values_of_absent_rows_change_no_update(make_learner: Callable[..., Any]) -> None:
    weights = []
    for filling in (0.0, 9.0):
        learner = make_learner("r2d2", RANDOM, **SMALL)
        for batch in batches(learner, 3, Random(3, filling=filling)):
            learner.update(batch, Clock(100))
        weights.append(learner.q_optimizer.flat.clone())
    assert torch.equal(*weights)


def test_conflicting_options_raise(make_learner: Callable[..., Any]) -> None:
    with pytest.raises(BadConfig, match=r"leave priority\.eviction at oldest"):
        make_learner("r2d2", "Chain", **{"priority.eviction": "sampled"}).buffer()
    with pytest.raises(UsageError, match=r"NumPy cannot compute a memory; leave --inference-backend at auto"):
        make_learner("r2d2", "Chain", inference_backend="numpy").agent()


@pytest.mark.slow
def test_recalls_a_cue_after_ten_steps(train_runner: Callable[..., Any]) -> None:
    options = {"total_timesteps": 16_000, "recurrent_cell": "gru", "recurrent_hidden_size": 32}
    runner = train_runner("r2d2", LongRecall.__name__, **options)
    assert evaluate(runner.snapshot().agent(), LongRecall(200), 1, Clock(1)).mean > 0.95
