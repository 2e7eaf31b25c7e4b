"""Actors on Ray feed one learner within the maximum lag, also if their nodes fail."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlplug_core.errors import MissingPackage, RlplugError, UsageError, WorkerFailed
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read
from tests.core.fakes import ENVS, TINY, TINY_Q, assert_same, make_runner, save_and_load
from tests.core.loop.test_actor_processes import lags_of
from tests.core.loop.test_async_processes import SCRIPT, alive
from tests.waiting import until

pytest.importorskip("ray")
#: Seconds after which no process of a killed run may be left: agents of Ray wait sixty seconds to send their last
#: message to a missing head, a constant of its `publish_error_to_driver`.
GONE = 75.0


def on_ray(algorithm: str = TINY, env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    settings = {"runner": "decoupled", "on": "ray", "actors": 2, "total_timesteps": 400, **options}
    return make_runner(algorithm, env, **settings)


def descendants(name: str) -> list[psutil.Process]:
    """The descendants of this process with `name` in the command line."""
    children = psutil.Process().children(recursive=True)
    running = [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in running if name in " ".join(child.cmdline())]


def test_actors_feed_one_learner_on_the_loopback_interface() -> None:
    runner = on_ray(total_timesteps=100_000, max_lag=1)
    ranks: set[int] = set()

    def poll() -> None:
        """Stop after episodes of both actors, because one may start long before the other."""
        ranks.update(rank for _, rank, _ in runner.episodes())
        runner.clock.stop = runner.clock.steps >= 1000 and ranks == {0, 1}

    try:
        from ray.experimental.internal_kv import _internal_kv_list

        import ray

        before = runner.snapshot().policy.outputs.weight.clone()
        lags = lags_of(runner, poll)
        assert (runner.snapshot().policy.outputs.weight != before).any()
        assert len(lags) == runner.clock.updates == runner.clock.steps // 8 >= 125
        assert max(lags) <= 1
        assert ranks == {0, 1}
        family = [child.pid for child in psutil.Process().children(recursive=True)]
        listening = {c.laddr.ip for c in psutil.net_connections("tcp") if c.pid in family and c.status == "LISTEN"}
        assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}
        (dashboard,) = descendants("dashboard.py")  # Ray's head always starts it; it must have no frontend
        assert "--disable-frontend" in dashboard.cmdline()
        exported = [
            key for table in (b"RemoteFunction", b"ActorClass") for key in _internal_kv_list(table, namespace=b"fun")
        ]
        assert not exported, "no code may be sent"
        assert ray.nodes()[0]["NodeManagerAddress"] == "127.0.0.1"
    finally:
        runner.close()


def test_replay_learns_from_several_actors_and_resumes_without_ray() -> None:
    runner = on_ray(TINY_Q, chunk_steps=5, total_timesteps=100_000)
    states: list[Any] = []

    def poll() -> None:
        if runner.clock.updates > 20 and all(ring.added > 20 for ring in runner.buffer.replays):
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = len(states) == 2  # the first state must not disturb the run

    try:
        runner.run(poll)
    finally:
        runner.close()
    again = make_runner(TINY_Q, chunk_steps=5, runner="decoupled", actors=2, total_timesteps=100_000)
    try:
        again.load_state_dict(states[-1])
        assert_same(states[-1]["learner"], save_and_load(again.snapshot().state_dict()))
        again.clock.limit = states[-1]["clock"]["steps"] + 200
        assert max(lags_of(again)) <= 3
    finally:
        again.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_frozen_actor_is_replaced(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    runner = on_ray(total_timesteps=10**6, worker_timeout=4.0)
    victims: list[int] = []

    def poll() -> None:
        if not victims and all(seat.delivered for seat in runner.fleet.seats):
            victims.append(descendants("ray::RayActor")[0].pid)
            os.kill(victims[0], number)
        replaced = [seat for seat in runner.fleet.seats if seat.generation]
        runner.clock.stop = any(not seat.losses for seat in replaced)

    try:
        assert max(lags_of(runner, poll)) <= 3
        assert sorted(seat.generation for seat in runner.fleet.seats) == [0, 1]
    finally:
        runner.close()
    assert not alive(victims[0])
    message = "was lost" if number is signal.SIGKILL else "sent no message for 4 s"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_or_frozen_node_loses_only_its_chunks(three_nodes: Any, number: signal.Signals) -> None:
    """Its actors restart on other nodes, and the step count never decreases."""
    runner = on_ray(on=f"ray://{three_nodes.address}", actors=2, total_timesteps=10**6, worker_timeout=10.0)
    failure_times: list[float] = []
    steps: list[int] = []
    node: list[psutil.Process] = []
    pauses = [0.0]
    moved = [time.monotonic()]

    def poll() -> None:
        if failure_times and steps[-1] != runner.clock.steps:
            pauses.append(time.monotonic() - moved[-1])
            moved.append(time.monotonic())
        steps.append(runner.clock.steps)
        if not failure_times and all(seat.delivered for seat in runner.fleet.seats):
            raylet = raylet_of(next(n for n in three_nodes.worker_nodes if has_actor(n)))
            node.extend([raylet, *raylet.children(recursive=True)])
            for process in node:
                process.send_signal(number)
            failure_times.append(time.monotonic())
            moved.append(failure_times[0])
        replaced = [seat for seat in runner.fleet.seats if seat.generation]
        runner.clock.stop = bool(replaced) and all(seat.delivered and not seat.losses for seat in replaced)
        if runner.clock.stop:
            failure_times.append(time.monotonic())

    try:
        assert max(lags_of(runner, poll)) <= 3
    finally:
        runner.close()
        for process in node:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    assert steps == sorted(steps)
    duration = failure_times[1] - failure_times[0]
    print(f"after {number.name} to a node no step for {max(pauses):.1f} s, all actors after {duration:.1f} s")  # noqa: T201


def raylet_of(node: Any) -> psutil.Process:
    """The process that is the parent of all others of a node."""
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def has_actor(node: Any) -> bool:
    """Whether one of our actors runs on a node."""
    return any("ray::RayActor" in " ".join(child.cmdline()) for child in raylet_of(node).children(recursive=True))


def test_error_of_the_environment_ends_the_run(tmp_path: Path) -> None:
    env = f"{Path(__file__).with_name('broken.py')}:FailsOnNodes"
    options = {"runner": "decoupled", "on": "ray"}
    with pytest.raises(WorkerFailed, match=r"actor [01] failed: '.*:FailsOnNodes' cannot be made") as caught:
        train(TINY, env, {**options, "total_timesteps": 10**6, "eval_episodes": 2}, out=tmp_path, hooks=False)
    assert "no display" in caught.value.details
    assert Run(RunDirectory.open(next(tmp_path.iterdir()))).status == "failed"


@pytest.mark.parametrize("victim", ["learner", "raylet"])
def test_killed_learner_or_raylet_leaves_no_process_and_the_run_resumes(tmp_path: Path, victim: str) -> None:
    """Ray ends the process of the learner without its raylet, so the guard process reports it."""
    options = {"runner": "decoupled", "on": "ray", "actors": 2, "log_every": 200, "checkpoint_every": 1000}
    code = SCRIPT.format(options=options, algorithm=TINY, env=f"{ENVS}:Chain", out=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: any((tmp_path / "run" / "checkpoints").glob("step-*")), seconds=5 * GONE)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4
    (raylet,) = [child for child in family if child.name() == "raylet"]
    (process if victim == "learner" else raylet).kill()
    _, output = process.communicate(timeout=GONE)
    assert process.returncode == (-signal.SIGKILL if victim == "learner" else 1)
    actor_lost = "was lost (ActorDiedError)"  # Ray may report the actors before it ends the process
    assert "the raylet of its node is gone" in output or (victim == "raylet" and actor_lost in output), output
    start_time = time.monotonic()
    until(
        lambda: not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE],
        seconds=GONE,
    )
    print(f"nothing was left after {time.monotonic() - start_time:.1f} s")  # noqa: T201
    assert not [name for name in os.listdir("/dev/shm") if "plasma" in name], "shared memory must be deleted"
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == ("failed" if actor_lost in output else "killed")
    steps = max(int(path.name.split("-")[1]) for path in (run.path / "checkpoints").glob("step-*"))
    again = resume(run, total_timesteps=steps + 500, hooks=False, on="ray")
    assert again.status == "finished"
    assert [record.step for record in read(run.journal)][-1] >= steps + 500


def test_missing_resources_of_a_cluster_raise_at_the_start(three_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlplug_core.loop import ray_cluster

    with pytest.raises(UsageError, match="4 actors with 1 CPUs each do not fit into the cluster's 3"):
        on_ray(on=f"ray://{three_nodes.address}", actors=4)
    ray_cluster.join(f"ray://{three_nodes.address}", 1)
    try:
        with pytest.raises(MissingPackage, match=r"no rlplug-absent: python -m pip install 'rlplug-absent==1\.2'"):
            ray_cluster.check_nodes({"rlplug-absent": "1.2"})
        monkeypatch.setattr(ray_cluster, "NODE_TIMEOUT", 10.0)
        with pytest.raises(UsageError, match="no 1 free on this machine"):
            ray_cluster.reserve(1)
        with pytest.raises(UsageError, match="has already joined a Ray cluster"):
            ray_cluster.join("ray", 1)
    finally:
        ray_cluster.leave()


def test_cluster_that_starts_too_slowly_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlplug_core.loop import ray_cluster

    def init(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr(ray_cluster.ray, "init", init)
    with pytest.raises(RlplugError, match="no Ray cluster could start here: The current node timed out"):
        ray_cluster.join("ray", 1)
