"""Pauses at a step, and exchanges between runs of a population: to the bits, also after a kill at any moment."""

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

ENV = "rlplug_core.testing.envs:Chain"
OPTIONS: dict[str, Any] = {
    "total_timesteps": 600, "num_envs": 2, "eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 0,
    "log_every": 50,
}  # fmt: skip


def run(out: Path, name: str, until: int | None = None, **options: Any) -> Run:
    return train(TINY_Q, ENV, {**OPTIONS, **options}, out=out, name=name, hooks=False, until=until)


def final(one: Run) -> Any:
    saved = read(next(one.directory.checkpoints_path.glob("final-*")))[0]
    saved["events"].pop("wall")
    return saved


def evaluations(one: Run) -> list[tuple[int, float]]:
    return [(r.step, r.data["eval/return_mean"]) for r in records(one.journal, kinds=("evaluation",))]


def test_a_paused_run_gives_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    whole = run(tmp_path, "whole")
    part = run(tmp_path, "part", until=201)
    assert part.status == "interrupted"
    assert Checkpoints(part.directory.checkpoints_path).kept("step")[0].step == 202
    with pytest.raises(UsageError, match=r"run part is at step 202 already, and --until 100 counts all its steps"):
        resume(part, until=100, hooks=False)
    part = resume(part, until=400, hooks=False)
    assert [r.data["reason"] for r in records(part.journal, kinds=("end",))][-1] == "stopped at step 400: --until 400"
    part = resume(part, hooks=False)
    assert part.status == "finished"
    assert_same(final(part), final(whole))
    assert evaluations(part) == evaluations(whole)


def test_a_run_continues_exactly_as_the_one_whose_checkpoint_it_took(tmp_path: Path) -> None:
    parent = run(tmp_path, "parent", until=200)
    child = run(tmp_path, "child", until=200, seed=2)
    step = Checkpoints(parent.directory.checkpoints_path).kept("step")[0]
    taken = Taken(1, "parent", step.path.name, {})
    take_checkpoint(child.path, taken)
    assert child.status == "interrupted"
    best = [Checkpoints(one.directory.checkpoints_path).kept("best")[0] for one in (parent, child)]
    assert_same(*(read(saved.path)[0] for saved in best))
    parent, child = (resume(one, hooks=False) for one in (parent, child))
    own, theirs = final(child), final(parent)
    for name in ("learner", "actor", "buffer"):
        assert_same(own[name], theirs[name])
    assert [r.data for r in records(child.journal, kinds=("exchange",))] == [taken.plain()]
    assert len(evaluations(child)) == 3


def test_options_change_with_an_exchange_and_are_recorded(tmp_path: Path) -> None:
    one = run(tmp_path, "one", until=200)
    step = Checkpoints(one.directory.checkpoints_path).kept("step")[0]
    take_checkpoint(one.path, Taken(1, "", step.path.name, {"target_update_interval": 3}))
    config = open_run(one.path).config
    assert genuine(config)
    assert (config["options"]["target_update_interval"], config["origins"]["target_update_interval"]) == (3, "exchange")
    assert config["exchanges"] == [
        {"chunk": 1, "source": "", "checkpoint": step.path.name, "options": {"target_update_interval": 3}}
    ]
    with pytest.raises(AssertionError):
        assert_same(final(resume(one, hooks=False))["learner"], final(run(tmp_path, "same"))["learner"])


class Killed(BaseException):
    """Raised in place of a kill."""


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Taken, Any]:
    """A directory with a parent, what a run takes from it, and the end of a run that took it and was not killed."""
    out = tmp_path_factory.mktemp("exchanged")
    step = Checkpoints(run(out, "parent", until=200).directory.checkpoints_path).kept("step")[0]
    taken = Taken(1, "parent", step.path.name, {"gradient_steps": 2})
    whole = run(out, "whole", until=200, seed=2)
    take_checkpoint(whole.path, taken)
    return out, taken, final(resume(whole, hooks=False))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name", "call"), [
    (Journal, "write", 1), (Checkpoints, "save", 1), (Checkpoints, "save", 2), (RunDirectory, "write_config", 1),
])  # fmt: skip
def test_a_kill_at_any_moment_of_an_exchange_changes_nothing(
    owner: type,
    name: str,
    call: int,
    after: bool,
    exchanged: tuple[Path, Taken, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, taken, whole = exchanged
    killed = run(out, f"killed-{name}-{call}-{after}", until=200, seed=2)
    plain: Callable[..., Any] = getattr(owner, name)
    calls = [0]

    def dying(*words: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            raise Killed
        found = plain(*words)
        if calls[0] == call:
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            take_checkpoint(killed.path, taken)
    take_checkpoint(killed.path, taken)
    take_checkpoint(killed.path, taken)  # once more changes nothing
    exchanges = [r.data for r in records(killed.journal, kinds=("exchange",))]
    assert exchanges == [taken.plain()]
    assert open_run(killed.path).config["exchanges"] == [taken.plain()]
    assert_same(final(resume(killed, hooks=False)), whole)


def test_a_configuration_that_this_account_did_not_write_is_not_sealed(tmp_path: Path) -> None:
    one = run(tmp_path, "one", until=200)
    config = one.config
    config["algorithm"] = "tests.core.tiny_q:TinyQ"
    config["seal"] = ""
    one.directory.write_config(config)
    step = Checkpoints(one.directory.checkpoints_path).kept("step")[0]
    before = one.directory.config_path.read_bytes()
    with pytest.raises(Untrusted, match="would execute"):
        take_checkpoint(one.path, Taken(1, "", step.path.name, {}))
    assert one.directory.config_path.read_bytes() == before
