"""What a stop at a bad moment, a second process, a forked child or a full disk leaves: everything, and once."""

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
from rlplug_core.runs.journal import Journal, Record, standing, tail
from rlplug_core.runs.journal import read as read_journal
from rlplug_core.runs.reproduction import reproduce
from tests.core.fakes import ENVS, TINY, assert_same

CHAIN = f"{ENVS}:Chain"
OPTIONS: dict[str, Any] = {
    "seed": 3, "num_envs": 2, "total_timesteps": 200, "runner": "sync", "eval_episodes": 5, "eval_every": 50,
    "log_every": 20, "checkpoint_every": 40, "final_eval_episodes": 10,
}  # fmt: skip


class Death(KeyboardInterrupt):
    """Stands for a kill: what comes after it is undone by `died`."""


def trained(out: Path, env: str = CHAIN, watch: Callable[[Progress], None] | None = None, **options: Any) -> Run:
    return train(TINY, env, {**OPTIONS, **options}, out=out, name="run", hooks=False, watch=watch)


def killed(run: Run, seq: int) -> None:
    """Leave what a kill would have left behind the record `seq`: no record after it, no checkpoint that saw more."""
    lines = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(lines[:seq]) + lines[seq][:9])
    for saved in Checkpoints(run.directory.checkpoints_path).kept():
        if read(saved.path, "learner")[1]["journal"] > seq:
            shutil.rmtree(saved.path)


def told(run: Run, *kinds: str) -> list[tuple[str, int, dict[str, Any]]]:
    """The records of these kinds without what time and place have to do with them."""
    records = read_journal(run.journal, kinds=kinds)
    return [(r.kind, r.step, {k: v for k, v in r.data.items() if not k.startswith("perf/")}) for r in records]


def weights(run: Run) -> Any:
    return Checkpoints(run.directory.checkpoints_path).load(["final"])[1]["learner"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("done"), keep_checkpoints=20)


STORY = ("metrics", "episodes", "evaluation", "final_eval")


# What was taken back.


@pytest.mark.parametrize("part", range(8))
def test_killed_behind_any_record_every_episode_and_point_is_there_once(done: Run, tmp_path: Path, part: int) -> None:
    last = max(record.seq for record in read_journal(done.journal, kinds=["final_eval"]))
    run = Run(shutil.copytree(done.path, tmp_path / "run"))
    killed(run, 2 + part * (last - 3) // 7)  # from behind the first checkpoint to behind the final one
    resume(run, hooks=False)
    assert told(run, *STORY) == told(done, *STORY)
    assert_same(weights(run), weights(done))
    assert run.episodes()["steps"].tolist() == done.episodes()["steps"].tolist()
    assert run.status == "finished"


def test_superseded_records_disappear_from_every_reader(tmp_path: Path) -> None:
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


def test_a_final_evaluation_stays_where_the_run_goes_beyond_it() -> None:
    def record(seq: int, kind: str, step: int, **data: Any) -> Record:
        return Record(seq, 0, kind, step, data)

    told = [record(1, "start", 0, after=0), record(2, "final_eval", 100, return_mean=1.0)]
    assert [r.seq for r in standing([*told, record(3, "start", 100, after=1)])] == [1, 2, 3]
    assert [r.seq for r in standing([*told, record(3, "start", 80, after=1)])] == [1, 3]


# Stopped behind the final checkpoint.


def behind_its_final_checkpoint(out: Path, act: Callable[[], None], **options: Any) -> None:
    def watch(progress: Progress) -> None:
        if progress.phase == "final_eval":
            act()

    trained(out, watch=watch, **options)


def twice() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("typed", [None, 200])
def test_stopped_behind_its_final_checkpoint_it_is_concluded(done: Run, tmp_path: Path, typed: int | None) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"stopped at once by a second SIGINT; to continue .* rlplug resume"):
        behind_its_final_checkpoint(tmp_path, twice)
    run = open_run(tmp_path / "run")
    assert (run.status, told(run, "final_eval")) == ("interrupted", [])
    resume(run, total_timesteps=typed, hooks=False)
    assert run.status == "finished"
    assert told(run, *STORY) == told(done, *STORY)


def test_killed_between_its_final_evaluation_and_its_end_it_has_one(done: Run, tmp_path: Path) -> None:
    run = Run(shutil.copytree(done.path, tmp_path / "run"))
    killed(run, max(record.seq for record in read_journal(run.journal, kinds=["final_eval"])))
    resume(run, hooks=False)
    assert run.status == "finished"
    assert told(run, *STORY) == told(done, *STORY)


def test_prolonged_and_killed_at_once_it_goes_on_to_where_it_was_to_go(tmp_path: Path) -> None:
    run = trained(tmp_path)
    resume(run, total_timesteps=300, hooks=False)
    whole, steps = weights(run), [saved.step for saved in Checkpoints(run.directory.checkpoints_path).kept("step")]
    other = trained(tmp_path / "other")
    seq = max(record.seq for record in read_journal(other.journal))

    def watch(progress: Progress) -> None:
        if progress.steps > 200:
            raise Death

    with pytest.raises(Death):
        resume(other, total_timesteps=300, watch=watch, hooks=False)
    killed(other, seq + 1)
    assert other.status == "killed"
    resume(other, hooks=False)
    assert steps[0] > 200
    assert_same(weights(other), whole)


def test_a_run_that_got_another_total_and_died_at_once_keeps_it(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def die(progress: Progress) -> None:
        raise Death

    with pytest.raises(Interrupted):
        trained(tmp_path, watch=stop)
    run = open_run(tmp_path / "run")
    seq = max(record.seq for record in read_journal(run.journal))
    with pytest.raises(Death):
        resume(run, total_timesteps=300, watch=die, hooks=False)
    killed(run, seq + 1)
    assert (run.status, run.summary().total_timesteps) == ("killed", 300)
    resume(run, rescale=True, hooks=False)
    assert (run.summary().steps, run.summary().total_timesteps) == (300, 300)
    assert Checkpoints(run.directory.checkpoints_path).load(["final"])[1]["clock"]["total"] == 300


# The first checkpoint.


def test_a_run_can_be_resumed_from_its_first_step_on(done: Run, tmp_path: Path) -> None:
    def watch(progress: Progress) -> None:
        raise Death

    with pytest.raises(Death):
        trained(tmp_path, watch=watch)
    run = open_run(tmp_path / "run")
    assert [saved.step for saved in Checkpoints(run.directory.checkpoints_path).kept()] == [0]
    with pytest.raises(UsageError, match=r"run exists already; choose another --name, or 'rlplug resume .*run'"):
        trained(tmp_path)
    resume(run, hooks=False)
    assert_same(weights(run), weights(done))
    assert told(run, *STORY) == told(done, *STORY)


@pytest.mark.parametrize("total", [None, 300])
def test_killed_before_its_first_checkpoint_it_begins_anew_and_goes_as_far_as_is_asked(
    tmp_path: Path, total: int | None
) -> None:
    run = trained(tmp_path / "whole", total_timesteps=200)
    killed(run, 1)
    assert not Checkpoints(run.directory.checkpoints_path).kept()
    resume(run, total_timesteps=total, rescale=total is not None, hooks=False)
    clock = Checkpoints(run.directory.checkpoints_path).load(["final"])[1]["clock"]
    assert (clock["steps"], clock["total"]) == (total or 200, total or 200)


@pytest.mark.parametrize("seq", [None, 12], ids=["finished", "killed"])
def test_a_run_whose_checkpoints_are_gone_keeps_what_it_recorded(done: Run, tmp_path: Path, seq: int | None) -> None:
    run = Run(shutil.copytree(done.path, tmp_path / "run"))
    if seq is not None:
        killed(run, seq)
    shutil.rmtree(run.directory.checkpoints_path)
    before = run.journal.read_bytes()
    with pytest.raises(UsageError, match=r"cannot continue, because its checkpoints are gone .*another --name"):
        resume(run, total_timesteps=400, hooks=False)
    assert run.journal.read_bytes() == before
    with pytest.raises(UsageError, match="no final checkpoint left to compare with" if seq is None else "is killed"):
        reproduce(run)


@pytest.mark.parametrize("left", [(), ("lock",)], ids=["an empty directory", "a lock"])
def test_a_directory_without_configuration_does_not_block_the_name(tmp_path: Path, left: tuple[str]) -> None:
    (tmp_path / "run").mkdir()
    for name in left:
        (tmp_path / "run" / name).write_text("1")
    assert trained(tmp_path).status == "finished"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("not ours")
    with pytest.raises(UsageError, match="other exists already; choose another --name; it holds no run"):
        RunDirectory.create(tmp_path, "other", "")


# One writer.


def test_a_resume_locks_before_it_loads(tmp_path: Path) -> None:
    run = trained(tmp_path)
    for saved in Checkpoints(run.directory.checkpoints_path).kept():
        (saved.path / "manifest.json").write_text("")  # as another process may be about to replace it
    with other_holds(run.path) as holder, pytest.raises(UsageError, match=f"written by process {holder};"):
        resume(run, hooks=False)


@contextmanager
def other_holds(path: Path) -> Iterator[int]:
    words = "import sys; from rlplug_core.runs.directory import RunDirectory as R\nR.open(sys.argv[1]).lock()"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{words}; print(flush=True); sys.stdin.read()", str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout
    holder.stdout.readline()
    yield holder.pid
    holder.communicate("")


def test_without_its_lock_file_a_run_is_as_locked(tmp_path: Path) -> None:
    run = trained(tmp_path)
    with other_holds(run.path):
        (run.path / "lock").unlink()
        assert run.status == "running"
        with pytest.raises(UsageError, match="is being written by process"):
            run.directory.lock()
        assert not run.directory.held
    assert run.status == "finished"


@pytest.mark.parametrize("how", ["deleted", "renamed", "journal"])
def test_a_run_whose_directory_goes_stops_at_once_and_makes_no_other(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    actions: dict[str, Callable[[], Any]] = {
        "deleted": lambda: shutil.rmtree(run), "renamed": lambda: run.rename(tmp_path / "moved"),
        "journal": (run / "journal.jsonl").unlink,
    }  # fmt: skip
    seen = []

    def watch(progress: Progress) -> None:
        seen.append(progress.steps)
        if progress.phase == "evaluating" and len(seen) > 2:
            actions.pop(how, lambda: None)()

    with pytest.raises(RlplugError, match=r"run directory .*run was deleted or moved, so the run has stopped"):
        trained(tmp_path, watch=watch, total_timesteps=100_000, eval_every=50)
    assert max(seen) < 200
    assert run.exists() == (how == "journal")
    if how == "renamed":
        moved = open_run(tmp_path / "moved")
        assert moved.status == "failed"
        assert resume(moved, total_timesteps=300, hooks=False).status == "finished"


FORKING = Path(__file__).with_name("forking.py")


@pytest.mark.parametrize("name", ["Lingers", "Returns", "Raises"])
def test_a_forked_child_of_an_environment_holds_no_lock_and_writes_nothing(
    done: Run, tmp_path: Path, name: str
) -> None:
    """Whether it outlives the run, comes back into the loop, or breaks out of it."""
    run = trained(tmp_path, env=f"{FORKING}:{name}")
    assert run.status == "finished"  # and not running, as one that lingers would have it
    assert told(run, *STORY) == told(done, *STORY)
    assert [r.seq for r in read_journal(run.journal)] == list(range(1, run.journal.read_bytes().count(b"\n") + 1))
    assert not (run.path / "error.txt").exists()


# A full disk.


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """As a full disk: a write beyond takes what fits and is refused then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose journal gets longer than any other of its files."""
    return trained(tmp_path_factory.mktemp("talkative"), log_every=2)


@pytest.mark.parametrize("share", [0.0, 0.7, 0.96])
def test_where_the_disk_is_full_it_says_where_and_goes_on_when_it_is_not(
    talkative: Run, tmp_path: Path, share: float
) -> None:
    """In a checkpoint, whose largest file does not fit, and in the journal, of which a share does."""
    biggest = max(path.stat().st_size for path in talkative.directory.checkpoints_path.rglob("*.*"))
    room = int(share * talkative.journal.stat().st_size) if share else biggest - 1
    assert (room > biggest) == bool(share)
    where = "journal.jsonl" if share else "step-000000000000"
    said = rf"{where} cannot be written: File too large; .*, then continue with 'rlplug resume .*run'"
    with no_file_beyond(room), pytest.raises(NotWritten, match=said):
        trained(tmp_path, log_every=2)
    run = open_run(tmp_path / "run")
    assert run.journal.read_bytes().endswith(b"\n")
    resume(run, hooks=False)
    assert told(run, *STORY) == told(talkative, *STORY)
    assert_same(weights(run), weights(talkative))


def test_a_disk_that_is_full_from_the_start_holds_no_name(tmp_path: Path) -> None:
    with no_file_beyond(100), pytest.raises(NotWritten, match="cannot be written: File too large"):
        trained(tmp_path)
    assert trained(tmp_path).status == "finished"


def test_a_line_that_the_disk_does_not_take_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("tag", 0, {"a": "b"})
    before = journal.path.read_bytes()
    with no_file_beyond(len(before) + 20), pytest.raises(NotWritten, match=r"journal.jsonl cannot be written"):
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
def test_a_damaged_line_is_passed_over_and_hides_no_other(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join([line(1), line(2), bad, line(4), line(5)]) + "\n")
    assert [record.seq for record, _ in tail(path, 0, 0)] == [1, 2, 4, 5]


def test_lines_that_are_gone_without_a_trace_hide_no_other(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join([line(1), "?", line(9), line(10), line(11), line(3), line(12)]) + "\n")
    assert [record.seq for record, _ in tail(path, 0, 0)] == [1, 9, 10, 11, 12]


def test_checkpoints_of_before_know_no_record_and_take_nothing_back(done: Run, tmp_path: Path) -> None:
    run = Run(shutil.copytree(done.path, tmp_path / "run"))
    killed(run, 20)
    for saved in Checkpoints(run.directory.checkpoints_path).kept():
        _, manifest = read(saved.path, "learner")
        kept = {key: value for key, value in manifest.items() if key not in ("sha256", "journal")}
        (saved.path / "manifest.json").write_bytes(seal_manifest(kept))
    resume(run, hooks=False)
    assert run.status == "finished"


def test_a_power_loss_undoes_no_name_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict model of file systems: a name is durable once its directory was synced after it was made."""
    durable: set[Path] = set()
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            durable.update(path.iterdir())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    run = trained(tmp_path / "runs", final_eval_episodes=1)
    directory = run.directory
    needed = {tmp_path / "runs", run.path, run.path / "lock", directory.config_path, directory.journal_path}
    needed |= {directory.checkpoints_path, *(saved.path for saved in Checkpoints(directory.checkpoints_path).kept())}
    assert not {path.relative_to(tmp_path) for path in needed - durable}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another account")
@pytest.mark.parametrize("how", ["-s", "-x"])
def test_a_reader_of_another_account_cannot_keep_the_owner_out(tmp_path: Path, how: str) -> None:
    """Everyone who can read a directory can lock it, and the owner's resume named a process that was dead."""
    run = trained(tmp_path)
    for folder in (run.path, *run.path.parents[:3]):
        folder.chmod(0o755)
    assert stat.S_IMODE((run.path / "lock").stat().st_mode) == 0o600
    words = ["setpriv", "--reuid", "65534", "--clear-groups", "flock", how, str(run.path), "-c", "echo held; sleep 60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert run.status == "finished"
        resume(run, total_timesteps=300, hooks=False)
        os.killpg(holder.pid, signal.SIGKILL)


def test_a_command_that_looks_at_the_lock_for_a_moment_keeps_nobody_out(tmp_path: Path) -> None:
    run = trained(tmp_path)
    with (run.path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with run.directory.locked():
            assert run.directory.held
