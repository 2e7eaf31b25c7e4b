"""Checks for side effects: on inputs, generators of the process, greedy actions, threads and processes."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlplug_core.acting.states import begin_acting
from rlplug_core.clock import Clock
from rlplug_core.seeds import Seeds, global_state
from rlplug_core.testing.kit.acting import TURNS, greedy_actions
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.probe import Probe, Scenario
from rlplug_core.testing.kit.short_run import TOTAL, Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves

#: The share of greedy actions that may differ between two agents: some explore a little during evaluation.
CHANCE = 0.2


def inputs(subject: Subject) -> None:
    """`act` does not write into observations, `is_first` or recurrent state, and `add` not into the step."""
    for explore in (True, False):
        _check_acting(subject, explore)
    trial = Trial(subject, Probe(subject.spec, Scenario("either")))
    for _ in range(TURNS):
        step = trial.actor.step()
        before = _fields(step)
        trial.actor.buffer.add(step)
        if path := difference(before, _fields(step)):
            raise Failed(
                f"`add` of {type(trial.actor.buffer).__name__} writes into the step's '{path}'; write into a copy"
            )
        for _ in trial.actor.buffer.batches(trial.clock):
            pass


def explore(subject: Subject) -> None:
    """With `explore=False` an agent returns its best actions and draws no random numbers for them."""
    first, second = (
        greedy_actions(subject, subject.learner(subject.spec, Seeds(0)).agent(rank, 2))
        for rank in (0, 1)
    )
    different = [path for path in first if difference({path: first[path]}, {path: second[path]})]
    if len(different) > CHANCE * len(first):
        raise Failed(
            f"two agents with equal weights and explore=False differ in {len(different)} of {len(first)} vector steps: "
            "`act` ignores `explore`; if it is False, return the best action and draw no random number"
        )


def generators(subject: Subject) -> None:
    """The process generators of torch, NumPy and Python are not seeded again, because others draw from them."""
    end_states = []
    for process in (0, 1):
        Trial(subject, process=process).run(subject.horizon.turns)
        end_states.append({kind: leaves({kind: state}) for kind, state in global_state().items()})
    first, second = end_states
    if seeded := [kind for kind in first if not difference(first[kind], second[kind])]:
        raise Failed(
            f"it seeds the process's generator of {' and '.join(seeded)}, which environments and other plugins draw "
            "from; create your own generator: context.seeds.child(name).generator()"
        )


@contextmanager
def check_generators(remedy: str) -> Iterator[None]:
    """Raise Failed if the block draws from a random generator of the process."""
    before = leaves(global_state())
    yield
    if path := difference(before, leaves(global_state())):
        raise Failed(f"it draws from a generator of the process ('{path}'); {remedy}")


def _check_acting(subject: Subject, explore: bool) -> None:
    env = Probe(subject.spec, Scenario("either"))
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    now = env.reset(7)
    agent, recurrent_state = begin_acting(agent, subject.spec.num_envs)
    clock = Clock(TOTAL)
    for _ in range(TURNS):
        arguments = {"obs": now.obs, "is_first": now.is_first, "recurrent_state": recurrent_state}
        before = leaves(arguments)
        act = agent.act(now.obs, now.is_first, recurrent_state, clock, explore=explore)
        if path := difference(before, leaves(arguments)):
            raise Failed(
                f"`act` of {type(agent).__name__} writes into '{path}', which buffers and environments still read; "
                "work on a copy"
            )
        now = env.step(act.action)
        recurrent_state = act.recurrent_state


def _fields(step: object) -> Leaves:
    assert dataclasses.is_dataclass(step)
    return leaves({field.name: getattr(step, field.name) for field in dataclasses.fields(step)})


def leaks(subject: Subject) -> None:
    """After a run no thread and no process of it is left."""
    threads = set(threading.enumerate())
    processes = children()
    # The run gets no name, so that the garbage collector can free it.
    Trial(subject).run(subject.horizon.turns)
    gc.collect()
    if left := [thread.name for thread in threading.enumerate() if thread not in threads]:
        raise Failed(
            f"the thread {left[0]!r} still runs after a run; end it, or start it only if needed"
        )
    if left_processes := children() - processes:
        raise Failed(f"the process {min(left_processes)} still runs after a run; end it")


def children() -> set[int]:
    """Return the ids of the children of this process; empty on systems without /proc."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for file in lists for number in file.read_text(encoding="ascii").split()}
