"""From a plan to its runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor, Lane
from rlplug_core.loop.events import Trainable
from rlplug_core.loop.places import LOCAL, before_import
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import Sync
from rlplug_core.plugins.wrapping import wrapped
from rlplug_core.protocols import Env, Learner


def build(plan: Plan, clock: Clock) -> Trainable:
    """The runner that the plan names, with environments reset and ready for the first step."""
    if plan.runner == "async":
        from rlplug_core.loop.async_inline import Inline
        from rlplug_core.loop.async_processes import Processes

        return Inline(plan, clock) if plan.options.inline else Processes(plan, clock)
    env = training_env(plan)
    learner = plan.make_learner(env.spec)
    if plan.runner == "decoupled":
        return _decoupled(plan, clock, env, learner)
    actor = Actor(env, Lane(learner, learner.agent(), learner.buffer()), clock)
    actor.reset(plan.seeds().child("env").integer())
    return Sync(actor, clock)


def training_env(plan: Plan) -> Env:
    """The environments that the synchronous loop steps, in as many processes as the plan says."""
    if min(plan.options.num_envs, plan.options.env_workers) < 2:
        return plan.make_env(plan.options.num_envs)
    from rlplug_core.loop.env_workers import EnvWorkers

    return plan.configured(wrapped(EnvWorkers(plan), plan.wrappings))


def _decoupled(plan: Plan, clock: Clock, env: Env, learner: Learner[Any]) -> Trainable:
    from rlplug_core.buffers.sources import of_sources
    from rlplug_core.loop.decoupled import Decoupled, Fleet
    from rlplug_core.loop.decoupled_inline import InlineActors
    from rlplug_core.loop.decoupled_processes import ActorProcesses

    lane = Lane(learner, learner.agent(), of_sources(learner.buffer, plan.options.actors))
    make: Callable[[Plan, Lane, Clock, Env], Fleet] = InlineActors if plan.options.inline else ActorProcesses
    if plan.options.on != LOCAL:
        before_import(plan.options.on)
        from rlplug_core.loop.decoupled_ray import RayActors

        make = RayActors
    return Decoupled(lane, make(plan, lane, clock, env), clock)
