"""Checks of what a plugin leaves alone: what it is given, the process's generators, greedy actions."""

from __future__ import annotations

import dataclasses

from rlplug_core.clock import Clock
from rlplug_core.seeds import Seeds, global_state
from rlplug_core.testing.kit.acting import acts
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.probe import Probe, Story
from rlplug_core.testing.kit.short_run import TOTAL, Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves

#: Vector steps in which agents are watched.
TURNS = 32
#: The share of greedy actions in which two agents on the same weights may differ: some evaluate with a little chance.
CHANCE = 0.2


def inputs(subject: Subject) -> None:
    """Acting writes into nothing that it is given, observations, `is_first` or memory, nor storing into its step."""
    for explore in (True, False):
        _check_acting(subject, explore)
    trial = Trial(subject, Probe(subject.spec, Story("either")))
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
    """With `explore=False` an agent gives the best actions it knows and draws nothing for them."""
    one, other = (_greedy(subject, rank) for rank in (0, 1))
    if not one:
        return
    parted = [path for path in one if difference({path: one[path]}, {path: other[path]})]
    if len(parted) > CHANCE * len(one):
        raise Failed(
            f"two agents on the same weights part in {len(parted)} of {len(one)} vector steps though asked not to "
            "explore: `act` ignores `explore`; where it is False, answer with the best action and draw no number"
        )


def generators(subject: Subject) -> None:
    """The process's own generators, of torch, numpy and Python, are not seeded anew: others draw from them."""
    ends = []
    for process in (0, 1):
        Trial(subject, subject.home_env(), process=process).run(subject.horizon.turns)
        ends.append({kind: leaves({kind: state}) for kind, state in global_state().items()})
    one, other = ends
    if seeded := [kind for kind in one if not difference(one[kind], other[kind])]:
        raise Failed(
            f"it seeds the process's generator of {' and '.join(seeded)}, which environments and other plugins draw "
            "from; make a generator of your own: context.seeds.child(name).generator()"
        )


def _check_acting(subject: Subject, explore: bool) -> None:
    env = Probe(subject.spec, Story("either"))
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    now = env.reset(7)
    remembered = agent.initial(subject.spec.num_envs)
    clock = Clock(TOTAL)
    for _ in range(TURNS):
        given = {"obs": now.obs, "is_first": now.is_first, "recurrent_state": remembered}
        before = leaves(given)
        act = agent.act(now.obs, now.is_first, remembered, clock, explore=explore)
        if path := difference(before, leaves(given)):
            raise Failed(
                f"`act` of {type(agent).__name__} writes into '{path}', which buffers and environments still read; "
                "work on a copy"
            )
        now = env.step(act.action)
        remembered = act.recurrent_state


def _fields(step: object) -> Leaves:
    assert dataclasses.is_dataclass(step)
    return leaves({field.name: getattr(step, field.name) for field in dataclasses.fields(step)})


def _greedy(subject: Subject, rank: int) -> Leaves:
    """Return the actions of an agent that is asked not to explore."""
    agent = subject.learner(subject.spec, Seeds(0)).agent(rank, 2)
    return leaves(
        [act.action for act in acts(agent, Probe(subject.spec, Story()), TURNS, explore=False)]
    )
