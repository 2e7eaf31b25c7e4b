"""Doors that must stay open, each shown on fakes: two lanes, two processes, memory and masks, a compiled loss."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.algorithm import Context
from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor, Lane
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.loop.sync import Meter, loop
from rlplug_core.protocols import Link
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Step
from tests.core.decoupled import PipeLink, act, rollout_of
from tests.core.fakes import ENVS, HERE, TINY, Tiny, TinyConfig, TinyQ, TinyQConfig, assert_same, make_runner, stored
from tests.core.recurrent import MaskedRecall, RecurrentA2C
from tests.core.writers import started

# Two lanes: two learners, one for each agent of an environment.


class Pair(Actor):
    """Steps an environment of two agents, each a chain with a learner of its own; time is counted once for both."""

    def __init__(self, actors: Sequence[Actor], clock: Clock) -> None:
        self.actors, self.clock = actors, clock
        self.lanes = tuple(actor.lane for actor in actors)

    def step(self) -> Sequence[tuple[Lane, Step]]:
        before = self.clock.steps
        pairs = []
        for actor in self.actors:
            self.clock.steps = before
            pairs += actor.step()
        return pairs


def make_lane(cls: Any, config: Any, seed: int, clock: Clock) -> Actor:
    env = Chain(2)
    learner = cls(env.spec, config, Context(Seeds(seed)))
    actor = Actor(env, Lane(learner, learner.agent(), learner.buffer()), clock)
    actor.reset(seed)
    return actor


# The clock counts the updates of both lanes, so a target network that goes by it would be copied at other times.
LEARNERS = [(Tiny, TinyConfig(), 1), (TinyQ, TinyQConfig(target_update_interval=10**6), 2)]


def test_two_lanes_under_the_one_loop_are_two_runs_of_their_own() -> None:
    """Bit for bit, although their batches fall due at different times."""
    clock, meter = Clock(200), Meter()
    pair = Pair([make_lane(*kind, clock) for kind in LEARNERS], clock)
    polls: list[int] = []
    loop(pair, clock, meter, lambda: polls.append(clock.steps))
    assert polls == list(range(0, 201, 2))
    updates = 0
    for kind, lane in zip(LEARNERS, pair.lanes, strict=True):
        alone = Clock(200)
        actor = make_lane(*kind, alone)
        loop(actor, alone, Meter(), lambda: None)
        assert alone.updates > 20
        updates += alone.updates
        assert_same(actor.lane.learner.policy.state_dict() if kind[0] is Tiny else {}, lane_policy(lane, kind[0]))
        assert_same(actor.lane.buffer.state_dict(), lane.buffer.state_dict())
    assert clock.updates == updates


def lane_policy(lane: Lane, cls: Any) -> Any:
    learner: Any = lane.learner
    return learner.policy.state_dict() if cls is Tiny else {}


def test_a_stop_in_one_lane_leaves_nothing_out_in_the_other() -> None:
    """Two replay lanes owe batches at the same step; the stop comes in the first, and the rest is made up for."""
    kinds = [(TinyQ, TinyQConfig(), seed) for seed in (1, 2)]

    def pair() -> tuple[Pair, Clock]:
        clock = Clock(60)
        return Pair([make_lane(*kind, clock) for kind in kinds], clock), clock

    whole, clock = pair()
    loop(whole, clock, Meter(), lambda: None)
    part, stopped = pair()
    learner: Any = part.lanes[0].learner
    update, seen = learner.update, []

    def stopping(batch: Any, now: Clock) -> Any:
        seen.append(1)
        stopped.stop = len(seen) == 2
        return update(batch, now)

    learner.update = stopping
    loop(part, stopped, Meter(), lambda: None)
    assert len(seen) == 2
    stopped.stop = False
    loop(part, stopped, Meter(), lambda: None)
    for one, other in zip(whole.lanes, part.lanes, strict=True):
        assert_same(one.buffer.state_dict(), other.buffer.state_dict())
        assert_same(dict(one.learner.online.state_dict()), dict(other.learner.online.state_dict()))  # type: ignore[attr-defined]


# Actor and learner in two processes.


@pytest.mark.parametrize("env", ["Chain", "Truncated", "Continuous"])
def test_two_processes_that_exchange_plain_arrays_are_the_one_loop(env: str) -> None:
    """With no lag the weights are those of the synchronous run, bit for bit."""
    options = {"seed": 3, "num_envs": 2, "total_timesteps": 96, "runner": "sync"}
    sync = make_runner(TINY, f"{ENVS}:{env}", **options)
    sync.run(lambda: None)
    ours, theirs = Pipe()
    process = started(act, theirs, TINY, f"{ENVS}:{env}", options)
    link = PipeLink(ours)
    assert_is_link(link)
    learner = make_runner(TINY, f"{ENVS}:{env}", **options).learner
    link.clock = clock = Clock(96)
    while True:
        link.publish(learner.agent().weights())
        if clock.done:
            break
        for chunk in link.receive():
            assert chunk.version == link.version  # no lag
            clock.steps = chunk.data.pop("steps")
            learner.update(rollout_of(chunk.data), clock)
            clock.updates += 1
    process.join(60)
    assert process.exitcode == 0
    assert clock.updates == sync.clock.updates == 12
    assert_same(dict(sync.learner.policy.state_dict()), dict(learner.policy.state_dict()))
    assert_same(dict(sync.learner.critic.state_dict()), dict(learner.critic.state_dict()))


def assert_is_link(link: Link) -> None:
    """The type checker's part of the proof."""
    assert link is not None


# A dictionary, a mask and a memory.

RECURRENT = f"{HERE}".replace("fakes.py", "recurrent.py")


def recurrent_runner(**options: Any) -> Any:
    given = {
        "seed": 1,
        "num_envs": 16,
        "total_timesteps": 30_000,
        "n_steps": 5,
        "learning_rate": 2e-2,
        "runner": "sync",
        **options,
    }
    return make_runner(f"{RECURRENT}:RecurrentA2C", f"{RECURRENT}:MaskedRecall", **given)


@pytest.mark.parametrize("steps", [3, 4, 7])
def test_what_the_loss_unrolls_is_what_the_actor_did(steps: int) -> None:
    """Rollouts begin in the middle of episodes of five steps; memory, openings and masks are where they were."""
    env = MaskedRecall(3)
    learner = RecurrentA2C(env.spec, TinyConfig(n_steps=steps), Context(Seeds(0)))
    actor = Actor(env, Lane(learner, learner.agent(), learner.buffer()), Clock(10**6))
    actor.reset(0)
    rollouts = 0
    while rollouts < 6:
        for lane, step in actor.step():
            lane.buffer.add(step)
            for rollout in lane.buffer.batches(actor.clock):
                expected = rollout.extras["log_prob"]
                np.testing.assert_allclose(learner.log_probs(rollout).detach(), expected, rtol=1e-4, atol=1e-5)
                rollouts += 1


def test_memory_is_learned_through_a_rollouts_carry() -> None:
    """Without memory nothing beyond 0.5 can be had."""
    runner = recurrent_runner()
    runner.run(lambda: None)
    result = evaluate(runner.learner.agent(), MaskedRecall(50), 7, Clock(1))
    assert result.mean > 0.9


def test_a_memory_is_stored_with_the_run() -> None:
    whole, first, resumed = (recurrent_runner(total_timesteps=600, num_envs=2, n_steps=3) for _ in range(3))
    whole.run(lambda: None)
    first.clock.limit = 302
    first.run(lambda: None)
    resumed.load_state_dict(stored(first.state_dict()))
    resumed.clock.limit = 600
    resumed.run(lambda: None)
    assert_same(whole.state_dict(), resumed.state_dict())


# A compiled loss.


@pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").exists(), reason="torch.compile needs Python's headers"
)
def test_a_compiled_loss_makes_the_same_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--compile`, with torch's real compiler, and a cache that nobody else writes."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    options = {"runner": "sync", "total_timesteps": 48, "optimizer": "adam"}
    eager, compiled = (make_runner(TINY, compile=flag, **options) for flag in (False, True))
    for runner in (eager, compiled):
        runner.run(lambda: None)
    assert eager.clock.updates == compiled.clock.updates == 6
    for one, other in zip(eager.learner.parameters(), compiled.learner.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    changed = make_runner(TINY, **options).learner.parameters()
    assert any((one != other).any() for one, other in zip(compiled.learner.parameters(), changed, strict=True))
