"""Runs pause at a step and exchange checkpoints within a population exactly, also after kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import Untrusted, UsageError
from rlplug_core.runs.api import Run, open_run, resume, train
from rlplug_core.runs.checkpoint import Checkpoints, read
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.exchange import Taken, take_checkpoint
from rlplug_core.runs.journal import Journal
from rlplug_core.runs.journal import read as records
from rlplug_core.runs.trust import genuine
from tests.core.fakes import TINY_Q, assert_same
from tests.core.runs.final import final_state

ENV = "rlplug_core.testing.envs:Chain"
OPTIONS: dict[str, Any] = {
    "total_timesteps": 600, "num_envs": 2, "eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 0,
    "log_every": 50,
}  # fmt: skip


def train_run(out: Path, name: str, until: int | None = None, **options: Any) -> Run:
    return train(TINY_Q, ENV, {**OPTIONS, **options}, out=out, name=name, hooks=False, until=until)


def evaluations(run: Run) -> list[tuple[int, float]]:
    return [(r.step, r.data["eval/return_mean"]) for r in records(run.journal, kinds=("evaluation",))]


def test_paused_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    expected = train_run(tmp_path, "whole")
    paused = train_run(tmp_path, "part", until=201)
    assert paused.status == "interrupted"
    assert Checkpoints(paused.directory.checkpoints_path).kept("step")[0].step == 202
    with pytest.raises(UsageError, match=r"run part is at step 202 already, and --until 100 counts all its steps"):
        resume(paused, until=100, hooks=False)
    paused = resume(paused, until=400, hooks=False)
    assert [r.data["reason"] for r in records(paused.journal, kinds=("end",))][-1] == "stopped at step 400: --until 400"
    paused = resume(paused, hooks=False)
    assert paused.status == "finished"
    assert_same(final_state(paused), final_state(expected))
    assert evaluations(paused) == evaluations(expected)


def test_continues_exactly_from_taken_checkpoint(tmp_path: Path) -> None:
    parent = train_run(tmp_path, "parent", until=200)
    child = train_run(tmp_path, "child", until=200, seed=2)
    step = Checkpoints(parent.directory.checkpoints_path).kept("step")[0]
    taken = Taken(1, "parent", step.path.name, {})
    take_checkpoint(child.path, taken)
    assert child.status == "interrupted"
    best = [Checkpoints(run.directory.checkpoints_path).kept("best")[0] for run in (parent, child)]
    assert_same(*(read(saved.path)[0] for saved in best))
    parent, child = (resume(run, hooks=False) for run in (parent, child))
    own, others = final_state(child), final_state(parent)
    for name in ("learner", "actor", "buffer"):
        assert_same(own[name], others[name])
    assert [r.data for r in records(child.journal, kinds=("exchange",))] == [taken.plain()]
    assert len(evaluations(child)) == 3


def test_exchange_changes_and_records_options(tmp_path: Path) -> None:
    run = train_run(tmp_path, "one", until=200)
    step = Checkpoints(run.directory.checkpoints_path).kept("step")[0]
    take_checkpoint(run.path, Taken(1, "", step.path.name, {"target_update_interval": 3}))
    config = open_run(run.path).config
    assert genuine(config)
    assert (config["options"]["target_update_interval"], config["origins"]["target_update_interval"]) == (3, "exchange")
    assert config["exchanges"] == [
        {"chunk": 1, "source": "", "checkpoint": step.path.name, "options": {"target_update_interval": 3}}
    ]
    same = train_run(tmp_path, "same")
    with pytest.raises(AssertionError):
        assert_same(final_state(resume(run, hooks=False))["learner"], final_state(same)["learner"])


class Killed(BaseException):
    """Raised in place of a kill."""


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Taken, Any]:
    """Return a directory with a parent, an exchange, and the final state of a run that made it without a kill."""
    out = tmp_path_factory.mktemp("exchanged")
    step = Checkpoints(train_run(out, "parent", until=200).directory.checkpoints_path).kept("step")[0]
    taken = Taken(1, "parent", step.path.name, {"gradient_steps": 2})
    expected = train_run(out, "whole", until=200, seed=2)
    take_checkpoint(expected.path, taken)
    return out, taken, final_state(resume(expected, hooks=False))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name", "call"), [
    (Journal, "write", 1), (Checkpoints, "save", 1), (Checkpoints, "save", 2), (RunDirectory, "write_config", 1),
])  # fmt: skip
def test_kill_during_exchange_changes_nothing(
    owner: type,
    name: str,
    call: int,
    after: bool,
    exchange: tuple[Path, Taken, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, taken, expected = exchange
    run = train_run(out, f"killed-{name}-{call}-{after}", until=200, seed=2)
    original: Callable[..., Any] = getattr(owner, name)
    calls = [0]

    def die(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            raise Killed
        result = original(*args)
        if calls[0] == call:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(Killed):
            take_checkpoint(run.path, taken)
    take_checkpoint(run.path, taken)
    take_checkpoint(run.path, taken)  # a repetition changes nothing
    exchanges = [r.data for r in records(run.journal, kinds=("exchange",))]
    assert exchanges == [taken.plain()]
    assert open_run(run.path).config["exchanges"] == [taken.plain()]
    assert_same(final_state(resume(run, hooks=False)), expected)


def test_does_not_seal_config_of_another_account(tmp_path: Path) -> None:
    run = train_run(tmp_path, "one", until=200)
    config = run.config
    config["algorithm"] = "tests.core.tiny_q:TinyQ"
    config["seal"] = ""
    run.directory.write_config(config)
    step = Checkpoints(run.directory.checkpoints_path).kept("step")[0]
    before = run.directory.config_path.read_bytes()
    with pytest.raises(Untrusted, match="would execute"):
        take_checkpoint(run.path, Taken(1, "", step.path.name, {}))
    assert run.directory.config_path.read_bytes() == before
