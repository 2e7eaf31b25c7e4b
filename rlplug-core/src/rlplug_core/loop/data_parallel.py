"""Several learners that take every gradient step together: one process leads, the others follow it.

Each has its own environments, buffer and learner and runs the synchronous loop; only
`Optimizer.minimize` differs, which takes the mean of their gradients (data-parallel, as in DD-PPO: Wijmans et al.,
2020, arXiv:1911.00357). No learner starts a vector step or an update before the leader. So all of them are at the
same point whenever the leader pauses, and a state is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from rlplug_core.algorithm import Algorithm
from rlplug_core.buffers.host_buffer import fit_device
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.learning.mean_gradient import MeanGradient
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.learner_checks import check_optimized
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import Meter, load_state, state_of
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.types import State


class Coordinator(Protocol):
    """Keeps the learners at the same point: vector steps and updates are counted alike."""

    def start_step(self) -> None:
        """Start a vector step or an update."""
        ...

    def should_continue(self) -> bool:
        """Wait until it is known whether there is another step, and answer requests meanwhile."""
        ...


class Member:
    """One of several learners: the synchronous loop, in lockstep with the others.

    Args:
        clock: its own view of the run's clock, which counts the env steps of all learners.
    """

    def __init__(self, plan: Plan, clock: Clock, rank: int) -> None:
        self.plan = plan
        self.clock = clock
        self.ranks = plan.options.learners
        env = plan.make_env(plan.options.num_envs)
        self.mean_gradient = MeanGradient(
            rank, self.ranks, plan.device(rank), plan.options.worker_timeout
        )
        self.learner: AnyLearner = plan.make_learner(
            env.spec, partial(Optimizer, mean=self.mean_gradient), rank, self.ranks, data=env
        )
        self._check(env)
        agent = self.learner.agent(rank, self.ranks)
        buffer = fit_device(self.learner.buffer(), env.spec)
        self.actor = Actor(env, self.learner, agent, buffer, clock)
        self.actor.learners = self.ranks
        # The first learner has the seeds of `sync`.
        seeds = plan.seeds().child("env", rank) if rank else plan.seeds().child("env")
        self.actor.reset(seeds.integer())
        self.meter = Meter()

    def run(self, coordinator: Coordinator, poll: Callable[[], None]) -> None:
        """Train until the coordinator ends it, starting with the batches that were left at a stop."""
        self._train(coordinator)
        while coordinator.should_continue():
            poll()
            if self.clock.done:
                break
            coordinator.start_step()
            self._step(coordinator)

    def _step(self, coordinator: Coordinator) -> None:
        before = self.clock.steps
        step = self.actor.step()
        rows = (self.clock.steps - before) // self.ranks
        expected = self.actor.env.spec.num_envs
        if rows != expected:
            raise UsageError(
                f"several learners need a transition of every row in each step, so that they keep pace, and "
                f"{self.plan.env} gave {rows} of {expected}: it resets rows in a separate step, or has agents that "
                "are absent; use one learner"
            )
        self.actor.buffer.add(step)
        self._train(coordinator)

    def _train(self, coordinator: Coordinator) -> None:
        buffer = self.actor.buffer
        for batch in buffer.batches(self.clock):
            coordinator.start_step()
            result = self.learner.update(batch, self.clock)
            buffer.feedback(batch, result)
            self.clock.updates += 1
            self.meter.add(result)
            if not coordinator.should_continue():
                return

    def _check(self, env: Env) -> None:
        """Refuse state that each learner would have separately, but that must be shared.

        Raises:
            UsageError: running moments, in the learner or in a wrapper; parameters that no optimizer has.
        """
        check_optimized(self.learner, "sync", self.ranks)
        moments = isinstance(self.learner, Algorithm) and self.learner.running
        if moments or complete(env).learned():
            owner = "its networks keep" if moments else "a wrapper keeps"
            raise UsageError(
                f"several learners would normalize differently: {owner} the running moments of "
                "one learner; leave out net.normalize_obs, PopArt and wrappers that normalize, or use one learner"
            )

    def state_dict(self) -> State:
        return state_of(self.actor, self.meter)

    def load_state_dict(self, state: State) -> None:
        load_state(self.actor, self.meter, state)
