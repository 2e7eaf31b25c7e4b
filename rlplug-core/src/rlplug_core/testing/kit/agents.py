"""Checks of agents: what several of one learner share, weights and nothing that draws; what one remembers."""

from __future__ import annotations

import torch

from rlplug_core.protocols import Agent
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.acting import acts
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Story
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves
from rlplug_core.types import Array

TURNS = 32
#: How often weights are changed at random while agents are compared.
SHAKES = 4


def agents(subject: Subject) -> None:
    """Agents of one learner share live weights, draw on their own, and differ between ranks."""
    alone = _actions(subject, disturbed=False)
    beside = _actions(subject, disturbed=True)
    if difference(alone[1], beside[1]):
        raise Failed("what one agent draws depends on another; give each a generator of its own")
    if not difference(*alone):
        raise Failed("agents of rank 0 and 1 explore alike; derive their seeds from the rank")
    trial = Trial(subject, subject.home_env())
    early = trial.learner.agent(1, 2)
    trial.run(subject.horizon.turns)
    new = trial.learner.agent()
    generator = torch.Generator().manual_seed(0)
    for _ in range(SHAKES):
        greedy = _greedy(subject, trial.learner.agent())
        for agent, which in (
            (trial.agent, "the agent that acted"),
            (early, "an agent made before"),
        ):
            if path := difference(leaves(agent.weights()), leaves(new.weights())):
                raise Failed(
                    f"after learning {which} has other weights than a new one ('{path}'); share, do not copy"
                )
            if difference(greedy, _greedy(subject, agent)):
                raise Failed(
                    f"after learning {which} acts on other weights than it shows; change parameters in place "
                    "(parameter.copy_), for views of them must stay true"
                )
        _shake(new, generator)


def memory(subject: Subject) -> None:
    """At the start of an episode the action and the next recurrent state do not depend on the old recurrent state."""
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    if agent.initial(subject.spec.num_envs) is None:
        raise Skipped("its agents remember nothing")
    for explore in (True, False):
        keeps, forgets = (_remembering(subject, explore, forgets) for forgets in (False, True))
        if path := difference(keeps, forgets):
            step, _, part = path.partition("/")
            raise Failed(
                f"'{part}' in step {step} depends on what was remembered when an episode opened; in `act` begin anew "
                "in the rows where `is_first` is set: nobody else resets the memory"
            )


def _remembering(subject: Subject, explore: bool, forgets: bool) -> Leaves:
    """All that an agent answers; `forgets` as in `acts`."""
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    env = Probe(subject.spec, Story())
    answers = acts(agent, env, TURNS, explore, forgets)
    return leaves(
        [
            leaves({"action": act.action, "memory": act.recurrent_state, "extras": act.extras})
            for act in answers
        ]
    )


def _shake(agent: Agent, generator: torch.Generator) -> None:
    """Change its weights in place, as pulling new ones does, so far that whoever acts on old ones acts otherwise.

    What has no negative number stays so: it may be a variance.
    """
    for tensor in agent.weights().values():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            factor = torch.randn(tensor.shape, generator=generator).to(tensor)
            tensor.mul_(4 * (factor if (tensor < 0).any() else factor.abs()))


def _greedy(subject: Subject, agent: Agent) -> Leaves:
    """Return the actions of an agent that does not explore."""
    return leaves(
        [act.action for act in acts(agent, Probe(subject.spec, Story()), TURNS, explore=False)]
    )


def _actions(subject: Subject, disturbed: bool) -> tuple[Leaves, Leaves]:
    """Return the actions of agents 0 and 1 on the same observations, one after the other or, `disturbed`, in turns."""
    learner = subject.learner(subject.spec, Seeds(0))
    first = learner.agent(0, 2)
    second = learner.agent(1, 2)
    other = acts(first, Probe(subject.spec, Story()), TURNS)
    ours: list[Array] = []
    theirs: list[Array] = []
    for act in acts(second, Probe(subject.spec, Story()), TURNS):
        ours.append(act.action.copy())
        if disturbed:
            theirs.append(next(other).action.copy())
    theirs += [act.action.copy() for act in other]
    return leaves(theirs), leaves(ours)
