"""Features of the contract, tested with fakes: stops, two processes, memory and masks, a compiled loss."""

from __future__ import annotations

import sysconfig
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.loop.sync import Meter, loop
from rlplug_core.protocols import Link
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from tests.core.decoupled import PipeLink, act, rollout_of
from tests.core.fakes import ENVS, HERE, TINY, TinyConfig, TinyQ, TinyQConfig, assert_same, make_runner, save_and_load
from tests.core.recurrent import MaskedRecall, RecurrentA2C
from tests.core.writers import start_process
from tests.waiting import PATIENCE


def test_stop_between_two_batches_skips_no_batch() -> None:
    """After a resume the batches that were due come first."""

    def new() -> Actor:
        env = Chain(2)
        learner = TinyQ(env.spec, TinyQConfig(), Context(Seeds(1)))
        actor = Actor(env, learner, learner.agent(), learner.buffer(), Clock(60))
        actor.reset(1)
        return actor

    whole = new()
    loop(whole, whole.clock, Meter(), lambda: None)
    part = new()
    learner: Any = part.learner
    update = learner.update
    seen = []

    def stop_in_the_second(batch: Any, now: Clock) -> Any:
        seen.append(now.steps)
        part.clock.stop = len(seen) == 2
        return update(batch, now)

    learner.update = stop_in_the_second
    loop(part, part.clock, Meter(), lambda: None)
    assert len(seen) == 2
    part.clock.stop = False
    loop(part, part.clock, Meter(), lambda: None)
    assert seen[1] == seen[2], "the stop came between two batches of one step"
    assert_same(whole.buffer.state_dict(), part.buffer.state_dict())
    assert_same(dict(whole.learner.online.state_dict()), dict(learner.online.state_dict()))  # type: ignore[attr-defined]


# Actor and learner in two processes.


@pytest.mark.parametrize("env", ["Chain", "Truncated", "Continuous"])
def test_two_processes_equal_one_loop(env: str) -> None:
    """Without a lag the weights equal those of the synchronous run, bit for bit."""
    options = {"seed": 3, "num_envs": 2, "total_timesteps": 96, "runner": "sync"}
    sync = make_runner(TINY, f"{ENVS}:{env}", **options)
    sync.run(lambda: None)
    ours, theirs = Pipe()
    process = start_process(act, theirs, TINY, f"{ENVS}:{env}", options)
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
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert clock.updates == sync.clock.updates == 12
    assert_same(dict(sync.learner.policy.state_dict()), dict(learner.policy.state_dict()))
    assert_same(dict(sync.learner.critic.state_dict()), dict(learner.critic.state_dict()))


def assert_is_link(link: Link) -> None:
    """Let the type checker compare a link with the protocol."""
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
def test_unroll_equals_the_states_of_the_actor(steps: int) -> None:
    """Rollouts start within episodes of five steps, with the memory, first flags and masks of that step."""
    env = MaskedRecall(3)
    learner = RecurrentA2C(env.spec, TinyConfig(n_steps=steps), Context(Seeds(0)))
    actor = Actor(env, learner, learner.agent(), learner.buffer(), Clock(10**6))
    actor.reset(0)
    rollouts = 0
    while rollouts < 6:
        step = actor.step()
        actor.buffer.add(step)
        for rollout in actor.buffer.batches(actor.clock):
            expected = rollout.extras["log_prob"]
            np.testing.assert_allclose(learner.log_probs(rollout).detach(), expected, rtol=1e-4, atol=1e-5)
            rollouts += 1


def test_learns_with_a_memory() -> None:
    """Without memory the best return is 0.5."""
    runner = recurrent_runner()
    runner.run(lambda: None)
    result = evaluate(runner.learner.agent(), MaskedRecall(50), 7, Clock(1))
    assert result.mean > 0.9


def test_memory_is_saved_with_the_run() -> None:
    whole, first, resumed = (recurrent_runner(total_timesteps=600, num_envs=2, n_steps=3) for _ in range(3))
    whole.run(lambda: None)
    first.clock.limit = 302
    first.run(lambda: None)
    resumed.load_state_dict(save_and_load(first.state_dict()))
    resumed.clock.limit = 600
    resumed.run(lambda: None)
    assert_same(whole.state_dict(), resumed.state_dict())


# A compiled loss.


@pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").exists(), reason="torch.compile needs Python's headers"
)
def test_compiled_loss_makes_the_same_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `--compile` with torch's real compiler and an empty cache."""
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
