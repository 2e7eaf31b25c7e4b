"""Actors in processes: they feed one learner within the bound on the lag, are replaced, and end with it."""

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
from rlplug_core.loop.chunk_queue import Permits, Traffic
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


def processes(env: str = f"{ENVS}:Chain", algorithm: str = TINY, **options: Any) -> Any:
    return make_runner(algorithm, env, **{"runner": "decoupled", "actors": 2, "total_timesteps": 400, **options})


def pids(runner: Any) -> list[int]:
    return [seat.remote.process.pid for seat in runner.fleet.seats]


def lags_of(runner: Any, poll: Callable[[], None] = lambda: None) -> list[int]:
    """The policy lags of a whole run."""
    lags: list[int] = []

    def look() -> None:
        lags.extend(runner.lags)
        runner.lags.clear()
        poll()

    runner.run(look)
    return [*lags, *runner.lags]


@pytest.mark.parametrize("max_lag", [0, 1, None])
def test_actors_feed_one_learner_within_the_bound(max_lag: int | None) -> None:
    runner = processes(max_lag=max_lag, total_timesteps=1000)
    try:
        before = runner.snapshot().policy.outputs.weight.clone()
        lags = lags_of(runner)
        assert (runner.snapshot().policy.outputs.weight != before).any()
        assert 1000 <= runner.clock.steps < 1000 + 8  # what was not learned from does not count
        assert len(lags) == runner.clock.updates == 125
        assert max(lags) <= (3 if max_lag is None else max_lag)
        assert {rank for _, rank, _ in runner.episodes()} == {0, 1}
        assert set(runner.metrics()) >= {"loss/value", "loss/gradient_norm"}
        left = pids(runner)
    finally:
        runner.close()
    assert not any(map(alive, left))


@pytest.mark.parametrize(
    "device",
    [
        "cpu:0",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")),
    ],
)
def test_actors_compute_where_they_are_told(device: str) -> None:
    runner = processes(actor_device=device, total_timesteps=200)
    try:
        assert runner.fleet.task.values["device"] == device
        assert len(lags_of(runner)) == 25
    finally:
        runner.close()


def own_memory(pid: int) -> float:
    """MiB of a process that no file stands for; what others share counts in part."""
    lines = (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no smaps_rollup here")
def test_memory_stays_flat_while_the_learner_is_slow() -> None:
    """Each of 400,000 env steps would take some 30 bytes if chunks waited without a bound."""
    runner = processes(num_envs=64, n_steps=64, total_timesteps=400_000)
    tree, sizes = [os.getpid(), *pids(runner)], list[float]()

    def look() -> None:
        """What is read here takes milliseconds, in which the actors come to their bound."""
        runner.episodes()
        runner.metrics()
        sizes.append(sum(map(own_memory, tree)))

    try:
        lags_of(runner, look)
        assert runner.clock.steps >= 400_000
    finally:
        runner.close()
    settled = len(sizes) // 4
    assert settled > 20
    assert max(sizes[settled:]) - max(sizes[:settled]) < 4, [round(size) for size in sizes]


def test_a_replay_learns_from_several_actors() -> None:
    runner = processes(algorithm=TINY_Q, chunk_steps=5, total_timesteps=100_000)

    def poll() -> None:
        learned = runner.clock.updates > 100
        runner.clock.stop = learned and all(ring.added > 50 for ring in runner.buffer.rings)

    try:
        runner.run(poll)
        assert runner.clock.steps < 100_000
    finally:
        runner.close()


def test_a_state_taken_in_the_middle_is_complete_and_a_run_goes_on_from_it() -> None:
    runner, states = processes(total_timesteps=100_000), []

    def poll() -> None:
        if runner.clock.updates > 20:
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = len(states) == 2  # the first one disturbs nothing

    try:
        runner.run(poll)
    finally:
        runner.close()
    state = states[-1]
    assert len(state["actors"]["all"]) == 2
    del state["actors"]["generations"]  # which older ones have not
    again = processes(total_timesteps=100_000)
    try:
        again.load_state_dict(state)
        again.clock.limit = state["clock"]["steps"] + 200
        assert_same(state["learner"], save_and_load(again.snapshot().state_dict()))
        assert again.fleet.version == state["actors"]["version"] == state["clock"]["updates"]
        assert max(lags_of(again)) <= 3
        assert again.clock.steps >= state["clock"]["steps"] + 200
        assert again.clock.updates > state["clock"]["updates"]
    finally:
        again.close()


def test_environments_that_begin_anew_do_not_play_the_first_episodes_again(tmp_path: Path) -> None:
    options = {"env": f"{TRACES}LogsSeeds", "env.file": str(tmp_path / "seeds"), "actors": 1}
    runner = processes(**options)
    try:
        runner.run(lambda: None)
        (first,) = seeds(tmp_path / "seeds", *pids(runner))
        state = save_and_load(runner.state_dict())
    finally:
        runner.close()
    again = processes(**options)
    try:
        again.load_state_dict(state)
        again.clock.limit *= 2
        again.run(lambda: None)
        built, anew = seeds(tmp_path / "seeds", *pids(again))
        assert built == first
        assert anew >= first + state["clock"]["steps"]
    finally:
        again.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_actor_that_is_killed_or_frozen_is_replaced_and_the_run_goes_on(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = processes(total_timesteps=100_000, worker_timeout=1.0)
    victims: list[int] = []

    def poll() -> None:
        seat = runner.fleet.seats[1]
        if not victims and seat.delivered:
            victims.append(seat.remote.process.pid)
            os.kill(victims[0], number)
        runner.clock.stop = seat.generation == 1 and seat.delivered

    try:
        lags = lags_of(runner, poll)
        assert max(lags) <= 3
        assert runner.fleet.seats[0].generation == 0
        assert victims[0] not in pids(runner)
        state = save_and_load(runner.state_dict())  # a whole one, of the new process too
        assert len(state["actors"]["all"]) == 2
    finally:
        runner.close()
    assert not alive(victims[0])
    again = processes()
    try:
        again.load_state_dict(state)
        assert [seat.generation for seat in again.fleet.seats] == [0, 1]  # the next one draws other numbers than that
    finally:
        again.close()
    how = "was killed by SIGKILL" if number is signal.SIGKILL else "sent no message for 1 s"
    assert capsys.readouterr().err == f"rlplug: actor 1 {how}; another one takes its place\n"


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_actors_close_their_environments_also_in_the_middle_of_a_long_chunk(tmp_path: Path, seconds: float) -> None:
    """A simulator that one has started would outlive the run."""
    file = tmp_path / "closed"
    options = {"env.file": str(file), "env.seconds": seconds, "chunk_steps": 200 if seconds else 4, "max_lag": 20}
    runner = processes(f"{TRACES}LogsClose", **options, total_timesteps=10**6)

    def poll() -> None:  # one that still starts has nothing to close, and is not waited for
        delivered = all(seat.delivered for seat in runner.fleet.seats)
        runner.clock.stop = len(logged_processes(steps_log(file))) == 2 if seconds else delivered

    try:
        runner.run(poll)
        members = pids(runner)
    finally:
        runner.close()
    assert set(members) <= logged_processes(file)
    assert not any(map(alive, members))


@pytest.mark.parametrize(("env", "sentence"), [
    (f"{ENVS}:CrashingWorker", "actor [01] failed: RuntimeError: the environment broke after 20 steps"),
    (f"{HARMFUL}Killed", "actor [01] was killed by SIGKILL before it had acted a whole chunk"),
    (f"{HARMFUL}FailsToBuild", "actor [01] failed: '.*:FailsToBuild' cannot be made"),
])  # fmt: skip
def test_a_fault_that_a_new_process_would_share_ends_the_run(tmp_path: Path, env: str, sentence: str) -> None:
    options = {"runner": "decoupled", "total_timesteps": 10**6, "eval_episodes": 2, "chunk_steps": 50}
    with pytest.raises(WorkerFailed, match=sentence) as caught:
        train(TINY, env, options, out=tmp_path, hooks=False)
    assert "\n" not in str(caught.value)
    (path,) = tmp_path.iterdir()
    assert re.search(sentence, (path / "error.txt").read_text())
    assert Run(RunDirectory.open(path)).status == "failed"


def blocks() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def test_when_the_learner_is_killed_nothing_is_left_and_a_resume_goes_on(
    tmp_path: Path, fork: Callable[..., Any]
) -> None:
    """No process, no block of shared memory; the run goes on from its last checkpoint."""
    before = blocks()
    process = start(fork, tmp_path, runner="decoupled", actors=2, log_every=200, checkpoint_every=1000)
    until(lambda: any((tmp_path / "run" / "checkpoints").glob("step-*")))
    assert len(group(process.pid)) >= 3  # the learner and two actors
    process.kill()
    process.communicate(timeout=PATIENCE)
    until(lambda: not group(process.pid))
    assert blocks() <= before
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == "killed"
    steps = max(int(path.name.split("-")[1]) for path in (run.path / "checkpoints").glob("step-*"))
    again = resume(run, total_timesteps=steps + 500, hooks=False)
    assert again.status == "finished"
    assert [record.step for record in read(run.journal)][-1] >= steps + 500


# The parts.


@given(st.integers(0, 7), st.integers(1, 4), st.integers(1, 20), st.randoms(use_true_random=False))
def test_no_order_of_arrivals_exceeds_the_bound_or_blocks(max_lag: int, actors: int, slots: int, draw: Any) -> None:
    """Whoever is slow: chunks arrive, and are learned from, at any moment that is allowed."""
    permits, acted, learned = Permits(max_lag, slots), dict.fromkeys(range(actors), 0), 0
    while learned < 60:
        while permit := permits.grant(min(acted, key=lambda rank: len(permits.acting(rank)) + draw.random())):
            assert permit.version == permits.version
        ranks = [rank for rank in acted if permits.acting(rank)]
        if ranks and draw.random() < 0.6:
            permit = permits.acting(draw.choice(ranks))[0]
            permit.chunk = Chunk(permit.source, permit.version, {})
        if permits.out[0].chunk is not None:
            assert permits.next() is not None  # the oldest may always be learned from
        if (ready := permits.next()) and draw.random() < 0.6:
            assert 0 <= permits.version - ready.version <= max_lag
            permits.version += 1
            permits.end(ready)
            learned += 1
        if draw.random() < 0.05:
            permits.forget_source(draw.choice(list(acted)))
    assert len(permits.out) + len(permits.free) == min(slots, max_lag + 1)


@given(st.integers(0, 7), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_actor_with_the_fewest_chunks_on_the_way_is_next(max_lag: int, actors: int, ahead: int, draw: Any) -> None:
    traffic = Traffic(max_lag, ahead, actors, Clock(10**6))
    for _ in range(30):
        ready = [rank for rank in range(actors) if draw.random() < 0.8]
        on_the_way = [permit.source for permit in traffic.permits.out]
        open_ = [rank for rank in ready if on_the_way.count(rank) < ahead]
        expected = min(open_, key=lambda rank: (on_the_way.count(rank), traffic.granted[rank]), default=None)
        full = len(on_the_way) == min(max_lag + 1, ahead * actors)
        permit = traffic.grant(ready)
        assert (None if permit is None else permit.source) == (None if full else expected)
        for rank in ready:
            if traffic.permits.acting(rank) and draw.random() < 0.5:
                traffic.receive_chunk(Chunk(rank, 0, {}), 1, [])
        if traffic.take():
            traffic.finish_chunk()
        if draw.random() < 0.1:
            traffic.permits.forget_source(draw.choice(range(actors)))
            again = Traffic(max_lag, ahead, actors, Clock(10**6))
            again.load_state_dict(waiting(traffic))
            assert again.permits.counts == Counter(permit.source for permit in again.permits.out)


def waiting(traffic: Traffic) -> Any:
    """Its state at a moment at which nobody acts."""
    for permit in [permit for permit in traffic.permits.out if permit.chunk is None]:
        traffic.permits.end(permit)
    return save_and_load(traffic.state_dict())


def test_actors_are_not_looked_through_while_no_permit_is_free() -> None:
    """Which is so whenever the learner is the limit, with a thousand of them."""
    traffic = Traffic(1, 16, 2, Clock(100))
    assert traffic.grant([0, 1]) is not None
    assert traffic.grant([0, 1]) is not None
    ready = iter([0, 1])
    assert traffic.grant(ready) is None
    assert next(ready) == 0


def test_a_fast_actor_overtakes_a_slow_one_as_far_as_the_bound_allows() -> None:
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
    assert permits.next() is None  # the slow one's chunk would be four versions old
    slow.chunk = Chunk(0, 0, {})
    assert permits.next() is slow


def weights(fill: float) -> dict[str, Any]:
    network = PolicyNetwork(Chain(1).spec, Net(hidden=(8,), normalize_obs=True))
    for tensor in network.state_dict().values():
        tensor.fill_(fill)
    return dict(network.state_dict())


def test_weights_arrive_whole_with_their_version() -> None:
    ours, theirs = weights(1.5), weights(0.0)
    shared = SharedWeights.like(ours)
    shared.put(ours, 7)
    assert shared.get(theirs) == 7
    assert_same(ours, theirs)
    assert {tensor.dtype for tensor in ours.values()} == {torch.float32, torch.float64}


def test_weights_that_change_while_they_are_read_are_read_again() -> None:
    shared, theirs, news = SharedWeights.like(weights(0.0)), weights(0.0), [weights(2.0), weights(3.0)]
    shared.put(weights(1.0), 1)

    class Interrupted(dict[str, Any]):
        """A writer comes in between while this is read."""

        def __getitem__(self, name: str) -> Any:
            if news and name == "outputs.bias":
                shared.put(news.pop(0), int(shared.versions[DONE]) + 1)
            return super().__getitem__(name)

    assert shared.get(Interrupted(theirs)) == 3
    assert all(np.all(tensor.numpy() == 3.0) for tensor in theirs.values())
