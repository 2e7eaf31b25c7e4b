"""Build the runner of a plan."""

from __future__ import annotations

from collections.abc import Callable

from rlplug_core.buffers.device_replay import DeviceReplay
from rlplug_core.buffers.host_buffer import fit_device
from rlplug_core.buffers.recorded import RecordedReplay, WarmReplay
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.buffers.sequences import SequenceReplay
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.actor_placement import LOCAL, before_import
from rlplug_core.loop.events import Runner
from rlplug_core.loop.learner_data import fit_dataset, gets_dataset
from rlplug_core.loop.notices import notice
from rlplug_core.loop.offline import Offline
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import Sync
from rlplug_core.plugins.spec import close_on_error, wrap_env
from rlplug_core.protocols import AnyBuffer, AnyLearner, Env


@notice("starting the environments and the processes of the run")
def build(plan: Plan, clock: Clock) -> Runner:
    """Return the runner of a plan, ready for the first step."""
    if plan.runner == "async":
        from rlplug_core.loop.async_inline import InlineWorkers
        from rlplug_core.loop.async_processes import WorkerProcesses

        return InlineWorkers(plan, clock) if plan.options.inline else WorkerProcesses(plan, clock)
    if plan.options.offline:
        return _offline(plan, clock)
    if plan.options.learners > 1:
        from rlplug_core.loop.data_parallel_leader import LearnerProcesses

        return LearnerProcesses(plan, clock)
    env = training_env(plan)
    with close_on_error(env):
        _check_tensors(plan, env)
        learner = plan.make_learner(env.spec, data=env)
        if plan.runner == "decoupled":
            return _make_decoupled(plan, clock, env, learner)
        actor = Actor(env, learner, learner.agent(), _buffer(plan, learner, env), clock)
        actor.reset(plan.seeds().child("env").integer())
    remake = plan.options.resume_exact and env.spec.inexact
    return Sync(actor, clock, (lambda: training_env(plan)) if remake else None)


def _buffer(plan: Plan, learner: AnyLearner, env: Env) -> AnyBuffer:
    buffer: AnyBuffer = learner.buffer()
    if plan.dataset is not None and not gets_dataset(plan.learner):
        data = fit_dataset(plan.dataset, env)
        buffer = WarmReplay(require_replay(plan, buffer), data, plan.options.dataset_share)
    return fit_device(buffer, env.spec)


def _check_tensors(plan: Plan, env: Env) -> None:
    """Raise UsageError if actors in other processes would have to send tensors to the learner."""
    if env.spec.device is not None and plan.runner == "decoupled" and not plan.options.inline:
        raise UsageError(
            f"{env.spec.id} gives tensors on {env.spec.device}, which the processes of the runner 'decoupled' do not "
            "send; add --inline"
        )


def _offline(plan: Plan, clock: Clock) -> Runner:
    assert plan.dataset is not None
    env = plan.make_env(1)
    try:
        learner = plan.make_learner(env.spec, data=env)
        replay = require_replay(plan, learner.buffer())
        return Offline(learner, RecordedReplay(replay, fit_dataset(plan.dataset, env)), clock)
    finally:
        env.close()


def require_replay(plan: Plan, buffer: object) -> ReplayBuffer:
    """Return a buffer that takes a data set.

    Raises:
        UsageError: the buffer is of another kind.
    """
    if not isinstance(buffer, ReplayBuffer):
        raise UsageError(
            f"{plan.algorithm} neither asks for a data set nor has a replay buffer that one could fill; use an "
            "algorithm with a replay buffer, such as iql, cql, sac or dqn"
        )
    if isinstance(buffer, DeviceReplay):
        raise UsageError(
            "a data set is arrays on the host, and the replay buffer of this environment stores tensors on its device; "
            "leave the data set out, or use --buffer-storage disk"
        )
    if isinstance(buffer, SequenceReplay):
        raise UsageError(
            f"a data set has no recurrent states, which {plan.algorithm} needs; use dqn, iql or cql"
        )
    return buffer


def training_env(plan: Plan) -> Env:
    """Return the environments that the synchronous loop steps, in as many processes as the plan says."""
    if min(plan.options.num_envs, plan.options.env_workers) < 2:
        return plan.make_env(plan.options.num_envs)
    from rlplug_core.loop.env_workers import EnvWorkers

    return plan.with_settings(wrap_env(EnvWorkers(plan), plan.wrappings))


def _make_decoupled(
    plan: Plan,
    clock: Clock,
    env: Env,
    learner: AnyLearner,
) -> Runner:
    from rlplug_core.buffers.sources import separate_sources
    from rlplug_core.loop.decoupled import Decoupled, Fleet
    from rlplug_core.loop.decoupled_inline import InlineActors
    from rlplug_core.loop.decoupled_processes import ActorProcesses

    _check_one_actor(plan, env, learner)
    buffer = separate_sources(lambda: fit_device(learner.buffer(), env.spec), plan.options.actors)
    make: Callable[[Plan, AnyLearner, Clock, Env], Fleet] = (
        InlineActors if plan.options.inline else ActorProcesses
    )
    if plan.options.on != LOCAL:
        before_import(plan.options.on)
        from rlplug_core.loop.decoupled_ray import RayActors

        make = RayActors
    on_device = env.spec.device is not None
    return Decoupled(learner, buffer, make(plan, learner, clock, env), clock, on_device)


def _check_one_actor(plan: Plan, env: Env, learner: AnyLearner) -> None:
    """Raise UsageError if several actors would fill one replay buffer with tensors."""
    shares_replay = plan.options.actors > 1 and isinstance(learner.buffer(), ReplayBuffer)
    if shares_replay and env.spec.device is not None:
        raise UsageError(
            f"{env.spec.id} gives tensors on {env.spec.device}, and a replay buffer takes those of one actor; use "
            "--actors 1 and more --num-envs"
        )
