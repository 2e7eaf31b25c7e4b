"""The asynchronous runner: the synchronous loop once per worker, over shared parameters (Mnih et al., 2016).

Only `Optimizer.minimize` differs: a worker's gradients are applied to the shared parameters without a lock, and
the result is copied back. `InlineWorkers` runs the workers in turn in one process, deterministically;
`async_processes.WorkerProcesses` runs them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor, nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.clock import Clock, Counters, SharedClock, Signals
from rlplug_core.config.schedules import Schedule
from rlplug_core.errors import UsageError
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory, SharedState
from rlplug_core.learning.update_rules import UpdateRule
from rlplug_core.loop.actor import sort_episodes
from rlplug_core.loop.episode_stats import means
from rlplug_core.loop.learner_checks import check_optimized
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import Meter, step_and_train, train
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.seeds import global_state, load_global_state
from rlplug_core.types import Episode, State


@dataclass(frozen=True)
class Shared:
    """All that workers share: parameters and state of every optimizer by name, and tensors that no optimizer trains.

    Attributes:
        stats_lock: the lock of a worker that updates running moments, which are several tensors.
    """

    states: dict[str, SharedState]
    untrained: dict[str, Tensor]
    stats_lock: AbstractContextManager[object]

    def optimizers(self) -> OptimizerFactory:
        """Return a factory that ties a learner's optimizers to the shared states of the same names."""

        def make(
            parameters: Iterable[nn.Parameter],
            /,
            *,
            name: str,
            rule: UpdateRule,
            learning_rate: Schedule | float,
            max_grad_norm: Schedule | float | None = None,
        ) -> Optimizer:
            return Optimizer(
                parameters,
                name=name,
                rule=rule,
                learning_rate=learning_rate,
                max_grad_norm=max_grad_norm,
                shared=self.states[name],
            )

        return make


def share(
    learner: AnyLearner,
    place: Callable[[Tensor], Tensor],
    lock: Callable[[], AbstractContextManager[object]],
) -> Shared:
    """Make `learner` the owner of shared state; `place` puts a tensor into shared memory, `lock` makes a lock.

    Raises:
        UsageError: the learner does not build on `Algorithm`, or trains a parameter without an optimizer.
    """
    if not isinstance(learner, Algorithm):
        raise UsageError(
            f"{type(learner).__name__} must build on rlplug_core.Algorithm to run under 'async'"
        )
    check_optimized(learner, "async", 1)
    for tensor in _tensors_without_optimizer(learner).values():
        tensor.data = place(tensor.data)
    states = {optimizer.name: optimizer.share(place) for optimizer in learner.optimizers}
    return Shared(
        states, _tensors_without_optimizer(learner), lock() if learner.running else nullcontext()
    )


def _tensors_without_optimizer(learner: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a learner that no optimizer trains (targets and moments), under each of their names."""
    fixed = {
        name: parameter
        for name, parameter in learner.named_parameters(remove_duplicate=False)
        if not parameter.requires_grad
    }
    return {**fixed, **dict(learner.named_buffers(remove_duplicate=False))}


class Worker:
    """One worker: its environment, its learner on shared parameters, its own agent and buffer."""

    def __init__(
        self,
        plan: Plan,
        shared: Shared,
        slots: Counters,
        signals: Signals,
        rank: int,
        env: Env | None = None,
    ) -> None:
        ranks = plan.options.workers
        self.clock = SharedClock(plan.options.total_timesteps, slots, signals, rank)
        env = env or plan.make_env(plan.options.num_envs)
        learner = plan.make_learner(
            env.spec, shared.optimizers(), rank, ranks, shared.stats_lock, data=env
        )
        assert isinstance(learner, Algorithm)
        self.untrained = _tensors_without_optimizer(learner)
        for name, tensor in self.untrained.items():
            tensor.data = shared.untrained[name].data
        self.learner: AnyLearner = learner
        self.actor = plan.make_actor(env, learner, self.clock, rank, ranks)
        self.meter = Meter()

    def state_dict(self) -> State:
        """Return the worker's own state; shared state may still change until all workers pause."""
        return {
            "clock": self.clock.state_dict(),
            "learner": {
                name: value
                for name, value in self.learner.state_dict().items()
                if name not in self.untrained
            },
            "buffer": self.actor.buffer.state_dict(),
            "actor": self.actor.state_dict(),
            "meter": self.meter.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.learner.load_state_dict({**self.learner.state_dict(), **state["learner"]})
        self.actor.buffer.load_state_dict(state["buffer"])
        self.actor.load_state_dict(state["actor"])
        self.meter.load_state_dict(state["meter"])


class InlineWorkers:
    """Runs the workers in this process, one vector step each in turn: deterministic; one worker equals `sync`."""

    name = "async"
    on_device = False

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self.clock = clock
        env = plan.make_env(plan.options.num_envs)
        self.inexact = env.spec.inexact
        self.master = plan.make_learner(env.spec)
        self.shared = share(self.master, lambda tensor: tensor, nullcontext)
        self.slots = [0] * plan.options.workers
        envs: Iterator[Env | None] = iter([env, *[None] * (plan.options.workers - 1)])
        self.workers = [
            Worker(plan, self.shared, self.slots, signals=clock, rank=rank, env=env)
            for rank, env in enumerate(envs)
        ]
        self.next = 0

    def run(self, poll: Callable[[], None]) -> None:
        for worker in self.workers:
            worker.clock.limit = self.clock.limit
            worker.clock.total = self.clock.total
            self._turn(
                worker,
                lambda worker: train(
                    worker.learner, worker.actor.buffer, worker.clock, worker.meter
                ),
            )
        while not self.clock.stop:
            poll()
            if self.clock.done:
                break
            self._turn(
                self.workers[self.next],
                lambda worker: step_and_train(worker.actor, worker.clock, worker.meter),
            )
            self.next = (self.next + 1) % len(self.workers)

    def _turn(self, worker: Worker, work: Callable[[Worker], None]) -> None:
        worker.clock.steps = self.clock.steps
        try:
            work(worker)
        finally:  # so that the clock is right in the message of an error, too
            self.clock.steps = worker.clock.steps
            self.clock.updates = sum(other_worker.clock.updates for other_worker in self.workers)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return sort_episodes(worker.actor.take_episodes() for worker in self.workers)

    def metrics(self) -> Mapping[str, float]:
        return means([worker.meter.flush() for worker in self.workers])

    def configure(self, settings: Mapping[str, object]) -> None:
        for worker in self.workers:
            complete(worker.actor.env).configure(settings)

    def snapshot(self) -> AnyLearner:
        return pull_copy(self.master)

    def state_dict(self) -> State:
        return {
            "clock": self.clock.state_dict(),
            "learner": self.snapshot().state_dict(),
            "workers": {
                "slots": list(self.slots),
                "next": self.next,
                "all": [worker.state_dict() for worker in self.workers],
            },
            "globals": global_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.master.load_state_dict(state["learner"])
        self.slots[:] = state["workers"]["slots"]
        self.next = state["workers"]["next"]
        for worker, saved in zip(self.workers, state["workers"]["all"], strict=True):
            worker.load_state_dict(saved)
        load_global_state(state["globals"])

    def close(self) -> None:
        for worker in self.workers:
            worker.actor.env.close()


def pull_copy(master: AnyLearner) -> AnyLearner:
    """Return the owner of the shared state, with a private copy of the current parameters."""
    assert isinstance(master, Algorithm)
    for optimizer in master.optimizers:
        optimizer.pull()
    return master
