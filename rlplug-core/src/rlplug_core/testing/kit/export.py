"""The check of a policy that an agent exports by itself."""

from __future__ import annotations

import numpy as np

from rlplug_core.acting.states import begin_acting
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.export.agent import ProgramAgent
from rlplug_core.export.flat import Flat
from rlplug_core.export.greedy import greedy
from rlplug_core.export.program import Program, trace
from rlplug_core.protocols import Agent, SupportsExport
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Scenario
from rlplug_core.testing.kit.short_run import TOTAL
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.types import Array

#: Number of compared vector steps.
TURNS = 100
#: Share of steps of a row that may differ: two actions may have equal values up to rounding.
TIES = 0.02


def export(subject: Subject) -> None:
    """If its agent has `exported()`, the exported policy acts like the agent for 100 steps with ends of episodes."""
    agent = subject.learner(subject.spec, Seeds(0)).agent()
    if not isinstance(agent, SupportsExport):
        raise Skipped("its agents have no method exported()")
    try:
        flat = Flat(greedy(agent), subject.spec.obs)
        program = ProgramAgent(
            Program(*trace(flat, flat.example(), flat.names)), flat.memory, flat.agents
        )
    except UsageError as error:
        raise Failed(str(error)) from error
    pairs = _actions(subject, agent, program)
    wrong = [
        number
        for number, (taken, exported) in enumerate(pairs)
        if np.shape(taken) != np.shape(exported)
        or not np.allclose(taken, exported, rtol=1e-4, atol=1e-4)
    ]
    if len(wrong) > TIES * len(pairs):
        taken, exported = pairs[wrong[0]]
        raise Failed(
            f"in step {wrong[0]} the exported policy takes {exported}, and the agent takes {taken} with "
            "explore=False; a module with a memory must reset the rows with `first`"
        )


def _actions(
    subject: Subject,
    agent: Agent,
    program: ProgramAgent,
) -> list[tuple[Array, Array]]:
    """Return the actions of both for the same observations."""
    env = Probe(subject.spec, Scenario("either", length=7))
    rows = subject.spec.num_envs
    acting, state = begin_acting(agent, rows)
    exported_state = program.initial(rows)
    clock = Clock(TOTAL)
    now = env.reset(7)
    pairs = []
    for _ in range(TURNS):
        act = acting.act(now.obs, now.is_first, state, clock, explore=False)
        exported = program.act(now.obs, now.is_first, exported_state, clock)
        pairs.append((act.action, exported.action))
        state = act.recurrent_state
        exported_state = exported.recurrent_state
        now = env.step(act.action)
    return pairs
