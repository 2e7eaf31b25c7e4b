"""Actor processes feed one learner within the maximum lag, are replaced after a fault, and end with it."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlplug_core.clock import Clock
from rlplug_core.errors import WorkerFailed
from rlplug_core.loop.chunk_queue import ChunkQueue, Permits
from rlplug_core.loop.shared_memory import DONE, SharedWeights
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Chunk
from tests.core.fakes import ENVS, HERE, TINY, TINY_Q, assert_same, make_runner, save_and_load
from tests.core.loop.test_async_processes import PATIENCE, alive, group, start
from tests.core.traces import logged_processes, seeds, steps_log
from tests.waiting import until

HARMFUL = f"{HERE}:".replace("fakes.py", "harmful.py")
TRACES = f"{HERE}:".replace("fakes.py", "traces.py")


def make_process_runner(env: str = f"{ENVS}:Chain", algorithm: str = TINY, **options: Any) -> Any:
    return make_runner(algorithm, env, **{"runner": "decoupled", "actors": 2, "total_timesteps": 400, **options})


def pids(runner: Any) -> list[int]:
    return [seat.child.process.pid for seat in runner.fleet.seats]


def lags_of(runner: Any, poll: Callable[[], None] = lambda: None) -> list[int]:
    """Run to the end and return the policy lags."""
    lags: list[int] = []

    def look() -> None:
        lags.extend(runner.lags)
        runner.lags.clear()
        poll()

    runner.run(look)
    return [*lags, *runner.lags]


@pytest.mark.parametrize("max_lag", [0, 1, None])
def test_actors_feed_one_learner_within_max_lag(max_lag: int | None) -> None:
    runner = make_process_runner(max_lag=max_lag, total_timesteps=1000)
    try:
        before = runner.snapshot().policy.outputs.weight.clone()
        lags = lags_of(runner)
        assert (runner.snapshot().policy.outputs.weight != before).any()
        assert 1000 <= runner.clock.steps < 1000 + 8  # chunks that were not learned from do not count
        assert len(lags) == runner.clock.updates == 125
        assert max(lags) <= (3 if max_lag is None else max_lag)
        assert {rank for _, rank, _ in runner.episodes()} == {0, 1}
        assert set(runner.metrics()) >= {"loss/value", "loss/gradient_norm"}
        actor_pids = pids(runner)
    finally:
        runner.close()
    assert not any(map(alive, actor_pids))


@pytest.mark.parametrize(
    "device",
    [
        "cpu:0",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")),
    ],
)
def test_actors_use_actor_device(device: str) -> None:
    runner = make_process_runner(actor_device=device, total_timesteps=200)
    try:
        assert runner.fleet.task.words.values["device"] == device
        assert len(lags_of(runner)) == 25
    finally:
        runner.close()


def private_memory(pid: int) -> float:
    """Return the MiB of a process without mapped files; shared memory counts in part."""
    lines = (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no smaps_rollup here")
def test_memory_does_not_grow_while_the_learner_is_slow() -> None:
    """Without a bound on waiting chunks, 400,000 env steps would take about 30 bytes each."""
    runner = make_process_runner(num_envs=64, n_steps=64, total_timesteps=400_000)
    tree = [os.getpid(), *pids(runner)]
    sizes = list[float]()

    def look() -> None:
        """Reading takes milliseconds, in which the actors reach their bound."""
        runner.episodes()
        runner.metrics()
        sizes.append(sum(map(private_memory, tree)))

    try:
        lags_of(runner, look)
        assert runner.clock.steps >= 400_000
    finally:
        runner.close()
    quarter = len(sizes) // 4
    assert quarter > 20
    assert max(sizes[quarter:]) - max(sizes[:quarter]) < 4, [round(size) for size in sizes]


def test_replay_learns_from_several_actors() -> None:
    runner = make_process_runner(algorithm=TINY_Q, chunk_steps=5, total_timesteps=100_000)

    def poll() -> None:
        learned = runner.clock.updates > 100
        runner.clock.stop = learned and all(ring.added > 50 for ring in runner.buffer.replays)

    try:
        runner.run(poll)
        assert runner.clock.steps < 100_000
    finally:
        runner.close()


def test_run_resumes_from_state_taken_during_training() -> None:
    runner = make_process_runner(total_timesteps=100_000)
    states = []

    def poll() -> None:
        if runner.clock.updates > 20:
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = len(states) == 2  # the first state changes nothing

    try:
        runner.run(poll)
    finally:
        runner.close()
    state = states[-1]
    assert len(state["actors"]["all"]) == 2
    del state["actors"]["generations"]  # older states lack it
    resumed = make_process_runner(total_timesteps=100_000)
    try:
        resumed.load_state_dict(state)
        resumed.clock.limit = state["clock"]["steps"] + 200
        assert_same(state["learner"], save_and_load(resumed.snapshot().state_dict()))
        assert resumed.fleet.version == state["actors"]["version"] == state["clock"]["updates"]
        assert max(lags_of(resumed)) <= 3
        assert resumed.clock.steps >= state["clock"]["steps"] + 200
        assert resumed.clock.updates > state["clock"]["updates"]
    finally:
        resumed.close()


def test_restarted_environments_get_new_seeds(tmp_path: Path) -> None:
    options = {"env": f"{TRACES}LogsSeeds", "env.file": str(tmp_path / "seeds"), "actors": 1}
    runner = make_process_runner(**options)
    try:
        runner.run(lambda: None)
        (first,) = seeds(tmp_path / "seeds", *pids(runner))
        state = save_and_load(runner.state_dict())
    finally:
        runner.close()
    resumed = make_process_runner(**options)
    try:
        resumed.load_state_dict(state)
        resumed.clock.limit *= 2
        resumed.run(lambda: None)
        initial, restarted = seeds(tmp_path / "seeds", *pids(resumed))
        assert initial == first
        assert restarted >= first + state["clock"]["steps"]
    finally:
        resumed.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_replaces_killed_or_frozen_actor(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    runner = make_process_runner(total_timesteps=100_000, worker_timeout=1.0)
    victims: list[int] = []

    def poll() -> None:
        seat = runner.fleet.seats[1]
        if not victims and seat.delivered:
            victims.append(seat.child.process.pid)
            os.kill(victims[0], number)
        runner.clock.stop = seat.generation == 1 and seat.delivered

    try:
        lags = lags_of(runner, poll)
        assert max(lags) <= 3
        assert runner.fleet.seats[0].generation == 0
        assert victims[0] not in pids(runner)
        state = save_and_load(runner.state_dict())  # complete, with the new process
        assert len(state["actors"]["all"]) == 2
    finally:
        runner.close()
    assert not alive(victims[0])
    resumed = make_process_runner()
    try:
        resumed.load_state_dict(state)
        assert [seat.generation for seat in resumed.fleet.seats] == [0, 1]  # so the next process draws other numbers
    finally:
        resumed.close()
    reason = "was killed by SIGKILL" if number is signal.SIGKILL else "sent no message for 1 s"
    assert capsys.readouterr().err == f"rlplug: actor 1 {reason}; another one takes its place\n"


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_actors_close_their_environments(tmp_path: Path, seconds: float) -> None:
    """Also within a long chunk; processes of an environment would outlive the run."""
    file = tmp_path / "closed"
    options = {"env.file": str(file), "env.seconds": seconds, "chunk_steps": 200 if seconds else 4, "max_lag": 20}
    runner = make_process_runner(f"{TRACES}LogsClose", **options, total_timesteps=10**6)

    def poll() -> None:  # an actor that still starts has nothing to close
        delivered = all(seat.delivered for seat in runner.fleet.seats)
        runner.clock.stop = len(logged_processes(steps_log(file))) == 2 if seconds else delivered

    try:
        runner.run(poll)
        members = pids(runner)
    finally:
        runner.close()
    assert set(members) <= logged_processes(file)
    assert not any(map(alive, members))


@pytest.mark.parametrize(("env", "message"), [
    (f"{ENVS}:CrashingWorker", "actor [01] failed: RuntimeError: the environment broke after 20 steps"),
    (f"{HARMFUL}Killed", "actor [01] was killed by SIGKILL before it had acted a whole chunk"),
    (f"{HARMFUL}FailsToBuild", "actor [01] failed: '.*:FailsToBuild' cannot be made"),
])  # fmt: skip
def test_repeatable_fault_ends_the_run(tmp_path: Path, env: str, message: str) -> None:
    options = {"runner": "decoupled", "total_timesteps": 10**6, "eval_episodes": 2, "chunk_steps": 50}
    with pytest.raises(WorkerFailed, match=message) as caught:
        train(TINY, env, options, out=tmp_path, hooks=False)
    assert "\n" not in str(caught.value)
    (path,) = tmp_path.iterdir()
    assert re.search(message, (path / "error.txt").read_text())
    assert Run(RunDirectory.open(path)).status == "failed"


def shared_blocks(pid: int) -> set[Path]:
    """Return the blocks of shared memory of a process."""
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return {Path(line.split()[5]) for line in lines if "/dev/shm/" in line}


def test_killed_learner_leaves_nothing_and_run_resumes(tmp_path: Path, fork: Callable[..., Any]) -> None:
    """No process and no shared memory stays; the run resumes from its last checkpoint."""
    process = start(fork, tmp_path, runner="decoupled", actors=2, log_every=200, checkpoint_every=1000)
    until(lambda: any((tmp_path / "run" / "checkpoints").glob("step-*")))
    assert len(group(process.pid)) >= 3  # the learner and two actors
    blocks = shared_blocks(process.pid)
    assert blocks
    process.kill()
    process.communicate(timeout=PATIENCE)
    until(lambda: not group(process.pid))
    assert not any(block.exists() for block in blocks)
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == "killed"
    steps = max(int(path.name.split("-")[1]) for path in (run.path / "checkpoints").glob("step-*"))
    resumed = resume(run, total_timesteps=steps + 500, hooks=False)
    assert resumed.status == "finished"
    assert [record.step for record in read(run.journal)][-1] >= steps + 500


# The parts.


@given(st.integers(0, 7), st.integers(1, 4), st.integers(1, 20), st.randoms(use_true_random=False))
def test_permits_keep_max_lag_in_any_order(max_lag: int, actors: int, slots: int, draw: Any) -> None:
    """Chunks arrive and are learned from at any allowed moment."""
    permits = Permits(max_lag, slots)
    acted = dict.fromkeys(range(actors), 0)
    learned = 0
    while learned < 60:
        while permit := permits.grant(min(acted, key=lambda rank: len(permits.acting(rank)) + draw.random())):
            assert permit.version == permits.version
        ranks = [rank for rank in acted if permits.acting(rank)]
        if ranks and draw.random() < 0.6:
            permit = permits.acting(draw.choice(ranks))[0]
            permit.chunk = Chunk(permit.source, permit.version, {})
        if permits.out[0].chunk is not None:
            assert permits.next() is not None  # the oldest chunk can always be learned from
        if (ready := permits.next()) and draw.random() < 0.6:
            assert 0 <= permits.version - ready.version <= max_lag
            permits.version += 1
            permits.end(ready)
            learned += 1
        if draw.random() < 0.05:
            permits.forget_source(draw.choice(list(acted)))
    assert len(permits.out) + len(permits.free) == min(slots, max_lag + 1)


@given(st.integers(0, 7), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_grants_to_actor_with_fewest_pending_chunks(max_lag: int, actors: int, ahead: int, draw: Any) -> None:
    queue = ChunkQueue(max_lag, ahead, actors, Clock(10**6))
    for _ in range(30):
        ready = [rank for rank in range(actors) if draw.random() < 0.8]
        pending = [permit.source for permit in queue.permits.out]
        candidates = [rank for rank in ready if pending.count(rank) < ahead]
        expected = min(candidates, key=lambda rank: (pending.count(rank), queue.granted[rank]), default=None)
        full = len(pending) == min(max_lag + 1, ahead * actors)
        permit = queue.grant(ready)
        assert (None if permit is None else permit.source) == (None if full else expected)
        for rank in ready:
            if queue.permits.acting(rank) and draw.random() < 0.5:
                queue.receive_chunk(Chunk(rank, 0, {}), 1, [])
        if queue.take():
            queue.finish_chunk()
        if draw.random() < 0.1:
            queue.permits.forget_source(draw.choice(range(actors)))
            resumed = ChunkQueue(max_lag, ahead, actors, Clock(10**6))
            resumed.load_state_dict(idle_state(queue))
            assert resumed.permits.counts == Counter(permit.source for permit in resumed.permits.out)


def idle_state(queue: ChunkQueue) -> Any:
    """Return the state without chunks that actors still fill."""
    for permit in [permit for permit in queue.permits.out if permit.chunk is None]:
        queue.permits.end(permit)
    return save_and_load(queue.state_dict())


def test_checks_no_actor_without_a_free_permit() -> None:
    """Checking a thousand actors would slow down a learner that is the bottleneck."""
    queue = ChunkQueue(1, 16, 2, Clock(100))
    assert queue.grant([0, 1]) is not None
    assert queue.grant([0, 1]) is not None
    ready = iter([0, 1])
    assert queue.grant(ready) is None
    assert next(ready) == 0


def test_fast_actor_overtakes_slow_one_within_max_lag() -> None:
    permits = Permits(3, 10)
    slow, *others = [permits.grant(source) for source in (0, 1, 1, 1)]
    assert slow is not None
    assert permits.grant(1) is None
    for learned in range(3):
        quick = others[learned]
        assert quick is not None
        quick.chunk = Chunk(1, 0, {})
        assert permits.next() is quick
        permits.version += 1
        permits.end(quick)
    late = permits.grant(1)
    assert late is not None
    late.chunk = Chunk(1, 3, {})
    assert permits.next() is None  # then the slow actor's chunk would be four versions old
    slow.chunk = Chunk(0, 0, {})
    assert permits.next() is slow


def weights(fill: float) -> dict[str, Any]:
    network = PolicyNetwork(Chain(1).spec, Net(hidden=(8,), normalize_obs=True))
    for tensor in network.state_dict().values():
        tensor.fill_(fill)
    return dict(network.state_dict())


def test_shared_weights_have_their_version() -> None:
    source, target = weights(1.5), weights(0.0)
    shared = SharedWeights.like(source)
    shared.put(source, 7)
    assert shared.get(target) == 7
    assert_same(source, target)
    assert {tensor.dtype for tensor in source.values()} == {torch.float32, torch.float64}


def test_reads_weights_again_if_they_change() -> None:
    shared = SharedWeights.like(weights(0.0))
    target = weights(0.0)
    updates = [weights(2.0), weights(3.0)]
    shared.put(weights(1.0), 1)

    class Interrupted(dict[str, Any]):
        """A target with a writer that changes the weights during a read."""

        def __getitem__(self, name: str) -> Any:
            if updates and name == "outputs.bias":
                shared.put(updates.pop(0), int(shared.versions[DONE]) + 1)
            return super().__getitem__(name)

    assert shared.get(Interrupted(target)) == 3
    assert all(np.all(tensor.numpy() == 3.0) for tensor in target.values())
