"""Algorithms with `--memory`: their updates against a memory without any fast form, and what they recall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import rlplug_core as rl
from rlplug_core.batches import Rollout
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from tests.algos.memories import Slow
from tests.reference.memory import Random

RANDOM = f"{Random.__module__}:{Random.__name__}"
SLOW = f"{Slow.__module__}:{Slow.__name__}:units=5"
#: Short rollouts; several minibatches where there are any.
ROLLOUTS: dict[str, dict[str, Any]] = {
    "ppo": {"batch_size": 16, "n_epochs": 2},
    "a2c": {"learning_rate": 1e-2},
    "impala": {"learning_rate": 1e-2},
    "appo": {"batch_size": 16, "n_epochs": 2, "target_update_interval": 1},
    "trpo": {"batch_size": 16, "n_critic_updates": 2, "sub_sampling_factor": 2},
}
REPLAY = {"a2c": {"replay_ratio": 1.0}}


def rollouts(made: Any, count: int) -> Iterator[tuple[Rollout, Clock]]:
    """So many, one after the other, of three rows with ends, truncations and absent rows."""
    buffer = made.buffer()
    actor = Actor(Random(3), made, made.agent(), buffer, Clock(10**6))
    actor.reset(3)
    while count > 0:
        step = actor.step()
        buffer.add(step)
        for rollout in buffer.batches(actor.clock):
            count -= 1
            yield rollout, actor.clock


@pytest.mark.parametrize("algorithm", ROLLOUTS)
def test_updates_equal_those_of_a_memory_in_loops(learner: Callable[..., Any], algorithm: str) -> None:
    """After four updates on rollouts that start in the middle of episodes, weights are the same up to rounding."""
    options = {"n_steps": 8, "net.hidden": [6], **ROLLOUTS[algorithm], **REPLAY.get(algorithm, {})}
    made, slow = (learner(algorithm, RANDOM, memory=words, **options) for words in ("gru:units=5", SLOW))
    before = [parameter.clone() for parameter in made.parameters()]
    for rollout, clock in rollouts(made, 4):
        made.update(rollout, clock)
        slow.update(rollout, clock)
    for old, ours, theirs in zip(before, made.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert not torch.equal(old, ours), "it was never trained"


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "appo"])
def test_a_policy_that_has_not_changed_gives_the_probabilities_of_its_actions(
    learner: Callable[..., Any], algorithm: str
) -> None:
    """The memory of a rollout starts with that of its actor: else V-trace would weigh samples that are on policy."""
    options = {"n_steps": 8, "net.hidden": [6], **ROLLOUTS[algorithm], **REPLAY.get(algorithm, {})}
    made = learner(algorithm, RANDOM, memory="gru:units=5", **options)
    for rollout, _ in rollouts(made, 4):
        found = rl.log_probs(rollout, made.policy, None)  # type: ignore[arg-type]
        valid = rollout.weight > 0
        np.testing.assert_allclose(found[valid], rollout.extras["log_prob"][valid], atol=1e-5)
