"""Checks of state: seeds, saving and loading, exact resume, evaluation during training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlplug_core.clock import Clock
from rlplug_core.errors import plain
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.plugins import absolute
from rlplug_core.protocols import Stateful
from rlplug_core.runs.checkpoint import Checkpoints, Saved, read
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.process import in_fresh_process, resume_and_summarize, summary
from rlplug_core.testing.kit.short_run import TOTAL, Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.types import State


def seeding(subject: Subject) -> None:
    """The same seed gives the same run bit for bit, another seed another run."""
    first, same_seed, other_seed = (
        Trial(subject, seed=seed).run(subject.horizon.turns).behavior() for seed in (0, 0, 1)
    )
    if path := difference(first, same_seed):
        raise Failed(
            f"two runs with one seed differ in '{path}'; draw all random numbers from the context's seeds"
        )
    if not difference(first, other_seed):
        raise Failed("runs with different seeds are the same; draw from the context's seeds")


def save_load(subject: Subject) -> None:
    """State can be saved and loaded into new and used objects; the state of a learner fits any `num_envs`."""
    for turns in (max(1, subject.horizon.first - 1), subject.horizon.turns):
        trial = Trial(subject).run(turns)
        fresh = Trial(subject, seed=1)
        pairs = {
            "learner": (trial.learner, fresh.learner),
            "agent": (trial.agent, fresh.agent),
            "buffer": (trial.buffer, fresh.buffer),
        }
        for noun, (live, new) in pairs.items():
            _check_round_trip(noun, live, new)
    few, many = (
        leaves(subject.learner(subject.make_main_env(rows).spec, Seeds(0)).state_dict())
        for rows in (1, 3)
    )
    if path := difference(few, many):
        raise Failed(
            f"the learner's state for one row does not fit three ('{path}'); evaluations have other numbers of rows; "
            "put data of a row into the agent or the buffer"
        )


def _check_round_trip(noun: str, live: Stateful, fresh: Stateful) -> None:
    before = leaves(live.state_dict())
    components = save_and_read({noun: live.state_dict()})
    for part, description in ((fresh, "a new one"), (live, "the same one")):
        part.load_state_dict(components[noun])
        if path := difference(before, leaves(part.state_dict())):
            raise Failed(
                f"the {noun}'s state differs after loading it into {description}: '{path}'"
            )


@contextmanager
def checkpoint_of(components: dict[str, State]) -> Iterator[Saved]:
    """Yield a checkpoint of the components in a temporary directory.

    Raises:
        Failed: something in it cannot be saved.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            checkpoint = Checkpoints(Path(folder)).save("step", 0, components, {})
        except (TypeError, ValueError) as error:
            raise Failed(f"it cannot be saved: {error}") from error
        yield checkpoint


def save_and_read(components: dict[str, State]) -> dict[str, State]:
    """Return the components after saving and reading a checkpoint.

    Raises:
        Failed: something in them cannot be saved.
    """
    with checkpoint_of(components) as checkpoint:
        return read(checkpoint.path)[0]


def resume(subject: Subject) -> None:
    """A run continues from a checkpoint at any moment, also between two batches, as if it had never stopped."""
    require_exact(subject)
    horizon = subject.horizon
    uninterrupted = Trial(subject).run(horizon.turns + 2)
    stops = {1, horizon.first // 2, horizon.first - 1, horizon.first, horizon.turns}
    for turns in sorted(stops - {0}):
        _check_resume(subject, uninterrupted, Trial(subject).run(turns), f"vector step {turns}")
    if horizon.repeated_update:
        stopped = Trial(subject)
        stopped.updates.stop_after = horizon.repeated_update
        stopped.run(horizon.turns)
        moment = f"update {horizon.repeated_update}, with more due batches,"
        _check_resume(subject, uninterrupted, stopped, moment)


def _check_resume(
    subject: Subject,
    uninterrupted: Trial,
    stopped: Trial,
    moment: str,
) -> None:
    turns = stopped.turns
    updates = len(stopped.updates.metrics)
    components = save_and_read(stopped.state())
    resumed = Trial(subject, seed=1).resume(components, turns).run(uninterrupted.turns)
    if path := difference(uninterrupted.behavior(turns, updates), resumed.behavior()):
        raise Failed(
            f"a run resumed after {moment} differs ('{path}'); put everything that matters later into a "
            "state_dict, including the due batches of a buffer"
        )


def fresh_process(subject: Subject) -> None:
    """A checkpoint continues in another process as in this one."""
    require_exact(subject)
    half = max(1, subject.horizon.turns // 2)
    turns = subject.horizon.turns + 2
    stopped = Trial(subject).run(half)
    updates = len(stopped.updates.metrics)
    with checkpoint_of(stopped.state()) as checkpoint:
        expected = summary(stopped.run(turns).behavior(half, updates))
        order = {
            "name": absolute(subject.name),
            "options": dict(subject.options),
            "env": subject.env and absolute(subject.env),
            "wrap": [wrapper.words for wrapper in subject.wrappers],
            "checkpoint": str(checkpoint.path),
            "from": half,
            "to": turns,
        }
        result = in_fresh_process(resume_and_summarize, order)
    if result.code:
        raise Failed(f"resuming in a fresh process fails: {plain(result.error[-300:])}")
    if wrong := [part for part in expected if expected[part] != result.result[part]]:
        raise Failed(
            f"a new process continues with other {' and '.join(wrong)}; some state of the old process is not saved"
        )


def evaluation(subject: Subject) -> None:
    """Evaluations do not change the training, and the same weights have the same returns."""
    turns = subject.horizon.turns
    baseline = Trial(subject).run(turns)
    trial = Trial(subject)
    while trial.turns < turns:
        trial.run(min(turns, trial.turns + max(1, turns // 4)))
        first, second = (
            evaluate(trial.learner.agent(), subject.make_main_env(4), 3, Clock(TOTAL))
            for _ in range(2)
        )
        if first != second:
            raise Failed(
                f"evaluated twice with the same weights it returns {first.returns} and {second.returns}"
            )
    for expected, actual in (
        (baseline.behavior(), trial.behavior()),
        (baseline.learner_state(), trial.learner_state()),
    ):
        if path := difference(expected, actual):
            raise Failed(
                f"a run with evaluations differs from one without ('{path}'); acting must not change the learner"
            )


def require_exact(subject: Subject) -> None:
    """Raise `Skipped` if the state of its environment cannot be captured."""
    if subject.spec.inexact:
        raise Skipped(f"the state of {subject.spec.id} cannot be captured: {subject.spec.inexact}")
