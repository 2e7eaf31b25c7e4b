"""From a plan to its runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlplug_core.actor import Actor, Lane
from rlplug_core.clock import Clock
from rlplug_core.plan import Plan
from rlplug_core.runners.sync import Sync

if TYPE_CHECKING:
    from rlplug_core.session import Trainable


def build(plan: Plan, clock: Clock) -> Trainable:
    """The runner that the plan names, with environments reset and ready for the first step."""
    if plan.runner == "async":
        from rlplug_core.runners.asynchronous import Inline
        from rlplug_core.runners.processes import Processes

        return Inline(plan, clock) if plan.options.inline else Processes(plan, clock)
    env = plan.make_env(plan.options.rows)
    learner = plan.make_learner(env.spec)
    actor = Actor(env, Lane(learner, learner.agent(), learner.buffer()), clock)
    actor.reset(plan.seeds().child("env").integer())
    return Sync(actor, clock)
