"""Actors behind Ray handles: they feed one learner within the bound on the lag, whatever befalls their nodes."""

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
#: Seconds after which nothing of a killed run may be left: agents of Ray give their last message to a head that is gone
#: sixty seconds, which is a constant of its `publish_error_to_driver`.
GONE = 75.0


def on_ray(algorithm: str = TINY, env: str = f"{ENVS}:Chain", **options: Any) -> Any:
    given = {"runner": "decoupled", "on": "ray", "actors": 2, "total_timesteps": 400, **options}
    return make_runner(algorithm, env, **given)


def descendants(name: str) -> list[psutil.Process]:
    """The processes of that title below this one."""
    found = psutil.Process().children(recursive=True)
    alive = [one for one in found if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    return [one for one in alive if name in " ".join(one.cmdline())]


def test_actors_feed_one_learner_within_the_bound_over_loopback_alone() -> None:
    runner = on_ray(total_timesteps=100_000, max_lag=1)
    heard: set[int] = set()

    def poll() -> None:
        """One actor may be there long before the other."""
        heard.update(rank for _, rank, _ in runner.episodes())
        runner.clock.stop = runner.clock.steps >= 1000 and heard == {0, 1}

    try:
        from ray.experimental.internal_kv import _internal_kv_list

        import ray

        before = runner.snapshot().policy.outputs.weight.clone()
        lags = lags_of(runner, poll)
        assert (runner.snapshot().policy.outputs.weight != before).any()
        assert len(lags) == runner.clock.updates == runner.clock.steps // 8 >= 125
        assert max(lags) <= 1
        assert heard == {0, 1}
        family = [one.pid for one in psutil.Process().children(recursive=True)]
        listening = {c.laddr.ip for c in psutil.net_connections("tcp") if c.pid in family and c.status == "LISTEN"}
        assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}
        (dashboard,) = descendants("dashboard.py")  # Ray's own head starts it always, and then it serves nobody
        assert "--disable-frontend" in dashboard.cmdline()
        exported = [
            key for table in (b"RemoteFunction", b"ActorClass") for key in _internal_kv_list(table, namespace=b"fun")
        ]
        assert not exported, "no code may travel"
        assert ray.nodes()[0]["NodeManagerAddress"] == "127.0.0.1"
    finally:
        runner.close()


def test_a_replay_learns_from_several_actors_and_a_state_goes_on_elsewhere() -> None:
    runner = on_ray(TINY_Q, chunk_steps=5, total_timesteps=100_000)
    states: list[Any] = []

    def poll() -> None:
        if runner.clock.updates > 20 and all(ring.added > 20 for ring in runner.buffer.rings):
            states.append(save_and_load(runner.state_dict()))
            runner.clock.stop = len(states) == 2  # the first one disturbs nothing

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
def test_an_actor_that_is_killed_or_frozen_is_replaced_and_the_run_goes_on(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = on_ray(total_timesteps=10**6, worker_timeout=4.0)
    victims: list[int] = []

    def poll() -> None:
        if not victims and all(seat.delivered for seat in runner.fleet.seats):
            victims.append(descendants("ray::RayActor")[0].pid)
            os.kill(victims[0], number)
        replaced = [seat for seat in runner.fleet.seats if seat.epoch]
        runner.clock.stop = any(not seat.losses for seat in replaced)

    try:
        assert max(lags_of(runner, poll)) <= 3
        assert sorted(seat.epoch for seat in runner.fleet.seats) == [0, 1]
    finally:
        runner.close()
    assert not alive(victims[0])
    how = "was lost" if number is signal.SIGKILL else "sent no message for 4 s"
    assert how in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_or_frozen_node_costs_no_more_than_its_chunks(three_nodes: Any, number: signal.Signals) -> None:
    """Its actors find a place on what is left; the run never goes back behind anything that it has learned from."""
    runner = on_ray(on=f"ray://{three_nodes.address}", actors=2, total_timesteps=10**6, worker_timeout=10.0)
    lost: list[float] = []
    seen: list[int] = []
    node: list[psutil.Process] = []
    pauses, moved = [0.0], [time.monotonic()]

    def poll() -> None:
        if lost and seen[-1] != runner.clock.steps:
            pauses.append(time.monotonic() - moved[-1])
            moved.append(time.monotonic())
        seen.append(runner.clock.steps)
        if not lost and all(seat.delivered for seat in runner.fleet.seats):
            raylet = raylet_of(next(n for n in three_nodes.worker_nodes if acts(n)))
            node.extend([raylet, *raylet.children(recursive=True)])
            for process in node:
                process.send_signal(number)
            lost.append(time.monotonic())
            moved.append(lost[0])
        replaced = [seat for seat in runner.fleet.seats if seat.epoch]
        runner.clock.stop = bool(replaced) and all(seat.delivered and not seat.losses for seat in replaced)
        if runner.clock.stop:
            lost.append(time.monotonic())

    try:
        assert max(lags_of(runner, poll)) <= 3
    finally:
        runner.close()
        for process in node:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    assert seen == sorted(seen)
    whole = lost[1] - lost[0]
    print(f"after {number.name} to a node no step for {max(pauses):.1f} s, all actors after {whole:.1f} s")  # noqa: T201


def raylet_of(node: Any) -> psutil.Process:
    """The process of a node that all others of it are children of."""
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def acts(node: Any) -> bool:
    """Whether an actor of ours is on that node of a cluster."""
    return any("ray::RayActor" in " ".join(child.cmdline()) for child in raylet_of(node).children(recursive=True))


def test_a_fault_that_another_actor_would_share_ends_the_run(tmp_path: Path) -> None:
    env, options = f"{Path(__file__).with_name('broken.py')}:FailsOnNodes", {"runner": "decoupled", "on": "ray"}
    with pytest.raises(WorkerFailed, match=r"actor [01] failed: '.*:FailsOnNodes' cannot be made") as caught:
        train(TINY, env, {**options, "total_timesteps": 10**6, "eval_episodes": 2}, out=tmp_path, hooks=False)
    assert "no display" in caught.value.details
    assert Run(RunDirectory.open(next(tmp_path.iterdir()))).status == "failed"


@pytest.mark.parametrize("victim", ["learner", "raylet"])
def test_when_the_learner_or_its_raylet_is_killed_nothing_is_left_and_a_resume_goes_on_in_another_cluster(
    tmp_path: Path, victim: str
) -> None:
    """Ray ends the process of the learner when its raylet is gone. Only another process can say so."""
    options = {"runner": "decoupled", "on": "ray", "actors": 2, "log_every": 200, "checkpoint_every": 1000}
    code = SCRIPT.format(options=options, algorithm=TINY, env=f"{ENVS}:Chain", out=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: any((tmp_path / "run" / "checkpoints").glob("step-*")), seconds=5 * GONE)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4
    (raylet,) = [one for one in family if one.name() == "raylet"]
    (process if victim == "learner" else raylet).kill()
    _, said = process.communicate(timeout=GONE)
    assert process.returncode == (-signal.SIGKILL if victim == "learner" else 1)
    lost = "was lost (ActorDiedError)"  # Ray may report the actors before it ends the process
    assert "the raylet of its node is gone" in said or (victim == "raylet" and lost in said), said
    began = time.monotonic()
    until(
        lambda: not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE], seconds=GONE
    )
    print(f"nothing was left after {time.monotonic() - began:.1f} s")  # noqa: T201
    assert not [name for name in os.listdir("/dev/shm") if "plasma" in name], "no block of shared memory may stay"
    run = Run(RunDirectory.open(tmp_path / "run"))
    assert run.status == ("failed" if lost in said else "killed")
    steps = max(int(path.name.split("-")[1]) for path in (run.path / "checkpoints").glob("step-*"))
    again = resume(run, total_timesteps=steps + 500, hooks=False, on="ray")
    assert again.status == "finished"
    assert [record.step for record in read(run.journal)][-1] >= steps + 500


def test_missing_parts_of_a_cluster_are_named_at_the_start(three_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlplug_core.loop import ray_cluster

    with pytest.raises(UsageError, match="4 actors with 1 CPUs each do not fit into the cluster's 3"):
        on_ray(on=f"ray://{three_nodes.address}", actors=4)
    ray_cluster.join(f"ray://{three_nodes.address}", 1)
    try:
        with pytest.raises(MissingPackage, match=r"no rlplug-absent: python -m pip install 'rlplug-absent==1\.2'"):
            ray_cluster.check_nodes({"rlplug-absent": "1.2"})
        monkeypatch.setattr(ray_cluster, "ASKING", 10.0)
        with pytest.raises(UsageError, match="no 1 free on this machine"):
            ray_cluster.reserve(1)
        with pytest.raises(UsageError, match="has already joined a Ray cluster"):
            ray_cluster.join("ray", 1)
    finally:
        ray_cluster.leave()


def test_a_cluster_that_starts_too_slowly_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlplug_core.loop import ray_cluster

    def init(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr(ray_cluster.ray, "init", init)
    with pytest.raises(RlplugError, match="no Ray cluster could start here: The current node timed out"):
        ray_cluster.join("ray", 1)
