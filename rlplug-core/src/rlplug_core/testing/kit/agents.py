"""Checks of agents: agents of one learner share weights but no generators, and forget at the start of an episode."""

from __future__ import annotations

import torch

from rlplug_core.protocols import Agent
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.acting import TURNS, acts, greedy_actions
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Scenario
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves
from rlplug_core.types import Array

#: Number of random changes of the weights while agents are compared.
PERTURBATIONS = 4


def agents(subject: Subject) -> None:
    """Agents of one learner share live weights, have separate generators, and differ between ranks."""
    separate = _actions(subject, in_turns=False)
    in_turns = _actions(subject, in_turns=True)
    if difference(separate[1], in_turns[1]):
        raise Failed("random numbers of one agent depend on another; give each its own generator")
    if not difference(*separate):
        raise Failed("agents of rank 0 and 1 explore equally; derive their seeds from the rank")
    trial = Trial(subject)
    early = trial.learner.agent(1, 2)
    trial.run(subject.horizon.turns)
    new = trial.learner.agent()
    generator = torch.Generator().manual_seed(0)
    for _ in range(PERTURBATIONS):
        greedy = greedy_actions(subject, trial.learner.agent())
        for agent, name in ((trial.agent, "the agent that acted"), (early, "an older agent")):
            if path := difference(leaves(agent.weights()), leaves(new.weights())):
                raise Failed(
                    f"after learning {name} has other weights than a new one ('{path}'); share them"
                )
            if difference(greedy, greedy_actions(subject, agent)):
                raise Failed(
                    f"after learning {name} acts with other weights than weights() has; change parameters in place "
                    "(parameter.copy_), so that views of them stay valid"
                )
        _perturb(new, generator)


def memory(subject: Subject) -> None:
    """At the start of an episode the action and the next recurrent state do not depend on the old recurrent state."""
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    if agent.initial(subject.spec.num_envs) is None:
        raise Skipped("its agents have no recurrent state")
    for explore in (True, False):
        continued, reset = (_behavior(subject, explore, forgets) for forgets in (False, True))
        if path := difference(continued, reset):
            step, _, part = path.partition("/")
            raise Failed(
                f"'{part}' in step {step} depends on the recurrent state before the start of an episode; reset "
                "the rows with `is_first` in `act`: no other part resets the recurrent state"
            )


def _behavior(subject: Subject, explore: bool, forgets: bool) -> Leaves:
    """Return all acts of an agent; `forgets` as in `acts`."""
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    env = Probe(subject.spec, Scenario())
    results = acts(agent, env, TURNS, explore, forgets)
    return leaves(
        [
            leaves({"action": act.action, "memory": act.recurrent_state, "extras": act.extras})
            for act in results
        ]
    )


def _perturb(agent: Agent, generator: torch.Generator) -> None:
    """Change weights in place, as an actor that pulls new weights does, enough to change the actions.

    Tensors without negative numbers keep that property, because they may be variances.
    """
    for tensor in agent.weights().values():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            factor = torch.randn(tensor.shape, generator=generator).to(tensor)
            tensor.mul_(4 * (factor if (tensor < 0).any() else factor.abs()))


def _actions(subject: Subject, in_turns: bool) -> tuple[Leaves, Leaves]:
    """Return the actions of agents 0 and 1 for the same observations, separately or in turns (`in_turns`)."""
    learner = subject.learner(subject.spec, Seeds(0))
    first = learner.agent(0, 2)
    second = learner.agent(1, 2)
    first_acts = acts(first, Probe(subject.spec, Scenario()), TURNS)
    actions: list[Array] = []
    first_actions: list[Array] = []
    for act in acts(second, Probe(subject.spec, Scenario()), TURNS):
        actions.append(act.action.copy())
        if in_turns:
            first_actions.append(next(first_acts).action.copy())
    first_actions += [act.action.copy() for act in first_acts]
    return leaves(first_actions), leaves(actions)
