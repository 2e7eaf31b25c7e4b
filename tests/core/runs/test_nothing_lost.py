"""Stops at bad moments, second processes, forked children and full disks lose or repeat no record."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import Interrupted, NotWritten, RlplugError, UsageError
from rlplug_core.loop.events import Progress
from rlplug_core.runs.api import Run, open_run, resume, train
from rlplug_core.runs.checkpoint import Checkpoints, read, seal_manifest
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import Journal, Record, tail, valid_records
from rlplug_core.runs.journal import read as read_journal
from rlplug_core.runs.reproduction import reproduce
from tests.core.fakes import ENVS, TINY, assert_same
from tests.core.runs.final import final_weights

CHAIN = f"{ENVS}:Chain"
OPTIONS: dict[str, Any] = {
    "seed": 3, "num_envs": 2, "total_timesteps": 200, "runner": "sync", "eval_episodes": 5, "eval_every": 50,
    "log_every": 20, "checkpoint_every": 40, "final_eval_episodes": 10,
}  # fmt: skip


class Death(KeyboardInterrupt):
    """Takes the place of a kill; `kill_after` removes the later records."""


def train_run(out: Path, env: str = CHAIN, watch: Callable[[Progress], None] | None = None, **options: Any) -> Run:
    return train(TINY, env, {**OPTIONS, **options}, out=out, name="run", hooks=False, watch=watch)


def kill_after(run: Run, seq: int) -> None:
    """Cut a run as a kill after record `seq` does: no later record, and no checkpoint that saw one."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(lines[:seq]) + lines[seq][:9])
    for saved in Checkpoints(run.directory.checkpoints_path).kept():
        if read(saved.path, "learner")[1]["journal"] > seq:
            shutil.rmtree(saved.path)


def stable_records(run: Run, *kinds: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Return the records of these kinds without measured times."""
    records = read_journal(run.journal, kinds=kinds)
    return [(r.kind, r.step, {k: v for k, v in r.data.items() if not k.startswith("perf/")}) for r in records]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(tmp_path_factory.mktemp("done"), keep_checkpoints=20)


STORY = ("metrics", "episodes", "evaluation", "final_eval")


# Superseded records.


@pytest.mark.parametrize("part", range(8))
def test_resume_after_kill_records_everything_once(finished_run: Run, tmp_path: Path, part: int) -> None:
    last = max(record.seq for record in read_journal(finished_run.journal, kinds=["final_eval"]))
    run = Run(shutil.copytree(finished_run.path, tmp_path / "run"))
    kill_after(run, 2 + part * (last - 3) // 7)  # from after the first checkpoint to after the final one
    resume(run, hooks=False)
    assert stable_records(run, *STORY) == stable_records(finished_run, *STORY)
    assert_same(final_weights(run), final_weights(finished_run))
    assert run.episodes()["steps"].tolist() == finished_run.episodes()["steps"].tolist()
    assert run.status == "finished"


def test_resume_supersedes_records(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    episode = {"steps": [5], "workers": [0], "returns": [1.0], "lengths": [5]}
    journal.write("start", 0, {"resumed": False, "after": 0})
    journal.write("episodes", 10, episode)
    journal.write("episodes", 20, episode)
    journal.write("tag", 20, {"kept": "yes"})
    journal.write("start", 20, {"resumed": True, "after": 2})  # its checkpoint was saved at 20, ahead of that record
    journal.write("episodes", 20, episode)
    journal.close()
    assert [r.seq for r in read_journal(journal.path, kinds=["episodes"])] == [2, 6]
    assert [r.seq for r in read_journal(journal.path)] == [1, 2, 4, 5, 6]
    assert len(list(tail(journal.path, 0))) == 6


def test_final_evaluation_stays_if_resumed_after_it() -> None:
    def record(seq: int, kind: str, step: int, **data: Any) -> Record:
        return Record(seq, 0, kind, step, data)

    records = [record(1, "start", 0, after=0), record(2, "final_eval", 100, return_mean=1.0)]
    assert [r.seq for r in valid_records([*records, record(3, "start", 100, after=1)])] == [1, 2, 3]
    assert [r.seq for r in valid_records([*records, record(3, "start", 80, after=1)])] == [1, 3]


# Stopped after the final checkpoint.


@pytest.mark.parametrize("total", [None, 200])
def test_resume_concludes_run_after_final_checkpoint(finished_run: Run, tmp_path: Path, total: int | None) -> None:
    def watch(progress: Progress) -> None:
        if progress.phase == "final_eval":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"stopped at once by a second SIGINT; to continue .* rlplug resume"):
        train_run(tmp_path, watch=watch)
    run = open_run(tmp_path / "run")
    assert (run.status, stable_records(run, "final_eval")) == ("interrupted", [])
    resume(run, total_timesteps=total, hooks=False)
    assert run.status == "finished"
    assert stable_records(run, *STORY) == stable_records(finished_run, *STORY)


def test_run_killed_after_final_evaluation_keeps_it(finished_run: Run, tmp_path: Path) -> None:
    run = Run(shutil.copytree(finished_run.path, tmp_path / "run"))
    kill_after(run, max(record.seq for record in read_journal(run.journal, kinds=["final_eval"])))
    resume(run, hooks=False)
    assert run.status == "finished"
    assert stable_records(run, *STORY) == stable_records(finished_run, *STORY)


def test_extended_run_resumes_to_new_total_after_kill(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    resume(run, total_timesteps=300, hooks=False)
    expected = final_weights(run)
    steps = [saved.step for saved in Checkpoints(run.directory.checkpoints_path).kept("step")]
    other = train_run(tmp_path / "other")
    seq = max(record.seq for record in read_journal(other.journal))

    def watch(progress: Progress) -> None:
        if progress.steps > 200:
            raise Death

    with pytest.raises(Death):
        resume(other, total_timesteps=300, watch=watch, hooks=False)
    kill_after(other, seq + 1)
    assert other.status == "killed"
    resume(other, hooks=False)
    assert steps[0] > 200
    assert_same(final_weights(other), expected)


def test_new_total_survives_kill(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def die(progress: Progress) -> None:
        raise Death

    with pytest.raises(Interrupted):
        train_run(tmp_path, watch=stop)
    run = open_run(tmp_path / "run")
    seq = max(record.seq for record in read_journal(run.journal))
    with pytest.raises(Death):
        resume(run, total_timesteps=300, watch=die, hooks=False)
    kill_after(run, seq + 1)
    assert (run.status, run.summary().total_timesteps) == ("killed", 300)
    resume(run, rescale=True, hooks=False)
    assert (run.summary().steps, run.summary().total_timesteps) == (300, 300)
    assert Checkpoints(run.directory.checkpoints_path).load(["final"])[1]["clock"]["total"] == 300


# The first checkpoint.


def test_resumes_from_first_step(finished_run: Run, tmp_path: Path) -> None:
    def watch(progress: Progress) -> None:
        raise Death

    with pytest.raises(Death):
        train_run(tmp_path, watch=watch)
    run = open_run(tmp_path / "run")
    assert [saved.step for saved in Checkpoints(run.directory.checkpoints_path).kept()] == [0]
    with pytest.raises(UsageError, match=r"run exists already; choose another --name, or 'rlplug resume .*run'"):
        train_run(tmp_path)
    resume(run, hooks=False)
    assert_same(final_weights(run), final_weights(finished_run))
    assert stable_records(run, *STORY) == stable_records(finished_run, *STORY)


def test_restart_before_first_checkpoint_takes_new_total(tmp_path: Path) -> None:
    run = train_run(tmp_path / "whole", total_timesteps=200)
    kill_after(run, 1)
    assert not Checkpoints(run.directory.checkpoints_path).kept()
    resume(run, total_timesteps=300, rescale=True, hooks=False)
    clock = Checkpoints(run.directory.checkpoints_path).load(["final"])[1]["clock"]
    assert (clock["steps"], clock["total"]) == (300, 300)


@pytest.mark.parametrize("seq", [None, 12], ids=["finished", "killed"])
def test_run_without_checkpoints_keeps_its_journal(finished_run: Run, tmp_path: Path, seq: int | None) -> None:
    run = Run(shutil.copytree(finished_run.path, tmp_path / "run"))
    if seq is not None:
        kill_after(run, seq)
    shutil.rmtree(run.directory.checkpoints_path)
    before = run.journal.read_bytes()
    with pytest.raises(UsageError, match=r"cannot continue, because its checkpoints are gone .*another --name"):
        resume(run, total_timesteps=400, hooks=False)
    assert run.journal.read_bytes() == before
    with pytest.raises(UsageError, match="no final checkpoint left to compare with" if seq is None else "is killed"):
        reproduce(run)


@pytest.mark.parametrize("files", [(), ("lock",)], ids=["an empty directory", "a lock"])
def test_only_directory_without_files_is_reused(tmp_path: Path, files: tuple[str]) -> None:
    (tmp_path / "run").mkdir()
    for name in files:
        (tmp_path / "run" / name).write_text("1")
    assert train_run(tmp_path).status == "finished"
    for kind, file in (("other", "notes.txt"), ("sweep", "sweep.json")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / file).touch()
        with pytest.raises(UsageError, match=rf"run directory .*{kind} exists already; choose another --name"):
            RunDirectory.create(tmp_path, kind, "")
        assert [path.name for path in (tmp_path / kind).iterdir()] == [file]


# One writer.


def test_resume_locks_before_loading(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    for saved in Checkpoints(run.directory.checkpoints_path).kept():
        (saved.path / "manifest.json").write_text("")  # as another process may be about to replace it
    with lock_in_other_process(run.path) as holder:
        assert run.status == "running"
        with pytest.raises(UsageError, match=f"is being written by process {holder}; wait for it or stop it first"):
            resume(run, hooks=False)


@contextmanager
def lock_in_other_process(path: Path) -> Iterator[int]:
    command = "import sys; from rlplug_core.runs.directory import RunDirectory as R\nR.open(sys.argv[1]).lock()"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{command}; print(flush=True); sys.stdin.read()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout
    holder.stdout.readline()
    yield holder.pid
    holder.communicate("")


def test_run_stays_locked_without_lock_file(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    with lock_in_other_process(run.path):
        (run.path / "lock").unlink()
        assert run.status == "running"
        with pytest.raises(UsageError, match="is being written by process"):
            run.directory.lock()
        assert not run.directory.held
    assert run.status == "finished"


@pytest.mark.parametrize("how", ["deleted", "renamed", "journal"])
def test_run_stops_if_its_directory_disappears(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    actions: dict[str, Callable[[], Any]] = {
        "deleted": lambda: shutil.rmtree(run),
        "renamed": lambda: run.rename(tmp_path / "moved"),
        "journal": (run / "journal.jsonl").unlink,
    }
    steps = []

    def watch(progress: Progress) -> None:
        steps.append(progress.steps)
        if progress.phase == "evaluating" and len(steps) > 2:
            actions.pop(how, lambda: None)()

    with pytest.raises(RlplugError, match=r"run directory .*run was deleted or moved, so the run has stopped"):
        train_run(tmp_path, watch=watch, total_timesteps=100_000, eval_every=50)
    assert max(steps) < 200
    assert run.exists() == (how == "journal")
    if how == "renamed":
        moved = open_run(tmp_path / "moved")
        assert moved.status == "failed"
        assert resume(moved, total_timesteps=300, hooks=False).status == "finished"


FORKING = Path(__file__).with_name("forking.py")


@pytest.mark.parametrize("name", ["Lingers", "Returns", "Raises"])
def test_forked_child_holds_no_lock_and_writes_nothing(finished_run: Run, tmp_path: Path, name: str) -> None:
    """The child outlives the run, returns into the loop, or leaves it by an exception."""
    run = train_run(tmp_path, env=f"{FORKING}:{name}")
    assert run.status == "finished"  # not running, although a child is alive
    assert stable_records(run, *STORY) == stable_records(finished_run, *STORY)
    assert [r.seq for r in read_journal(run.journal)] == list(range(1, run.journal.read_bytes().count(b"\n") + 1))
    assert not (run.path / "error.txt").exists()


# A full disk.


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Act like a full disk: a write beyond `size` writes what fits, then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


#: Checkpoints are larger than the source files of the run, the journal is larger than both.
LONG: dict[str, Any] = {"log_every": 2, "net.hidden": [40, 40]}


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a journal longer than its other files."""
    return train_run(tmp_path_factory.mktemp("talkative"), **LONG)


@pytest.mark.parametrize("share", [0.0, 0.7, 0.96])
def test_full_disk_names_the_file_and_run_resumes(long_run: Run, tmp_path: Path, share: float) -> None:
    """The disk is full in the largest file of a checkpoint, or after a share of the journal."""
    largest = max(path.stat().st_size for path in long_run.directory.checkpoints_path.rglob("*.*"))
    limit = int(share * long_run.journal.stat().st_size) if share else largest - 1
    assert (limit > largest) == bool(share)
    file = "journal.jsonl" if share else "step-000000000000"
    message = rf"{file} cannot be written: File too large; .*, then continue with 'rlplug resume .*run'"
    with limit_file_size(limit), pytest.raises(NotWritten, match=message):
        train_run(tmp_path, **LONG)
    run = open_run(tmp_path / "run")
    assert run.journal.read_bytes().endswith(b"\n")
    resume(run, hooks=False)
    assert stable_records(run, *STORY) == stable_records(long_run, *STORY)
    assert_same(final_weights(run), final_weights(long_run))


def test_full_disk_at_start_does_not_block_name(tmp_path: Path) -> None:
    with limit_file_size(100), pytest.raises(NotWritten, match="cannot be written: File too large"):
        train_run(tmp_path)
    assert train_run(tmp_path).status == "finished"


def test_failed_write_leaves_journal_unchanged(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("tag", 0, {"a": "b"})
    before = journal.path.read_bytes()
    with limit_file_size(len(before) + 20), pytest.raises(NotWritten, match=r"journal.jsonl cannot be written"):
        journal.write("tag", 1, {"a": "b"})
    assert journal.path.read_bytes() == before
    journal.write("tag", 1, {"a": "b"})
    journal.close()
    assert [r.seq for r in read_journal(journal.path)] == [1, 2]


# A damaged journal.


EMPTY_COLUMNS = {"steps": [1], "workers": [], "returns": [], "lengths": []}
DAMAGED = {
    "seq too high": {"seq": 900}, "seq too low": {"seq": 1}, "no status": {"kind": "end"},
    "strange status": {"kind": "end", "data": {"status": 7}}, "columns": {"kind": "episodes", "data": EMPTY_COLUMNS},
    "step": {"step": 10**30}, "time": {"time": -5}, "infinite step": {"step": float("inf")},
}  # fmt: skip


def line(seq: int, damage: dict[str, Any] | None = None) -> str:
    return json.dumps({"seq": seq, "time": 1, "kind": "tag", "step": 0, "data": {}, **(damage or {})})


BAD = {name: line(3, damage) for name, damage in DAMAGED.items()} | {"deep": "[" * 100_000, "zeros": "\0" * 90}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_skips_only_damaged_lines(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join([line(1), line(2), bad, line(4), line(5)]) + "\n")
    assert [record.seq for record, _ in tail(path, 0, 0)] == [1, 2, 4, 5]


def test_reads_lines_after_missing_ones(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join([line(1), "?", line(9), line(10), line(11), line(3), line(12)]) + "\n")
    assert [record.seq for record, _ in tail(path, 0, 0)] == [1, 9, 10, 11, 12]


def test_resumes_from_checkpoint_without_journal_position(finished_run: Run, tmp_path: Path) -> None:
    run = Run(shutil.copytree(finished_run.path, tmp_path / "run"))
    kill_after(run, 20)
    for saved in Checkpoints(run.directory.checkpoints_path).kept():
        _, manifest = read(saved.path, "learner")
        content = {key: value for key, value in manifest.items() if key not in ("sha256", "journal")}
        (saved.path / "manifest.json").write_bytes(seal_manifest(content))
    resume(run, hooks=False)
    assert run.status == "finished"


def test_syncs_directory_of_each_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict model of file systems: a name is durable after its directory was synced."""
    durable: set[Path] = set()
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            durable.update(path.iterdir())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    run = train_run(tmp_path / "runs", final_eval_episodes=1)
    directory = run.directory
    needed = {tmp_path / "runs", run.path, run.path / "lock", directory.config_path, directory.journal_path}
    needed |= {directory.checkpoints_path, *(saved.path for saved in Checkpoints(directory.checkpoints_path).kept())}
    assert not {path.relative_to(tmp_path) for path in needed - durable}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another account")
@pytest.mark.parametrize("how", ["-s", "-x"])
def test_other_account_cannot_block_the_owner(tmp_path: Path, how: str) -> None:
    """Everyone who can read a directory can lock it; the owner's resume then named a dead process."""
    run = train_run(tmp_path)
    for folder in (run.path, *run.path.parents[:3]):
        folder.chmod(0o755)
    assert stat.S_IMODE((run.path / "lock").stat().st_mode) == 0o600
    lock = ["flock", how, str(run.path), "-c", "echo held; sleep 60"]
    command = ["setpriv", "--reuid", "65534", "--clear-groups", *lock]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert run.status == "finished"
        resume(run, total_timesteps=300, hooks=False)
        os.killpg(holder.pid, signal.SIGKILL)


def test_short_shared_lock_does_not_block_a_run(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    with (run.path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with run.directory.locked():
            assert run.directory.held
