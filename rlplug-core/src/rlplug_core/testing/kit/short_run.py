"""A small run, driven step by step, that records the behavior of the plugin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from rlplug_core.arrays import to_host
from rlplug_core.buffers.host_buffer import fit_device
from rlplug_core.clock import Clock
from rlplug_core.learning.optimizer import Optimizer, OptimizerFactory
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.sync import Meter, Sync, step_and_train, train
from rlplug_core.protocols import Agent, AnyBuffer, AnyLearner, Env
from rlplug_core.seeds import Seeds, seed_globals
from rlplug_core.testing.kit.extra_inputs import dataset_of, with_signals
from rlplug_core.testing.kit.trees import Leaves, leaves
from rlplug_core.types import Array, Result, State, Step

if TYPE_CHECKING:
    from rlplug_core.testing.kit.subject import Subject

#: Total env steps of the clock of a trial; only schedules use it.
TOTAL = 100_000


class Updates(Meter):
    """Keeps a copy of the metrics and the turn (the vector step) of every update; stops after update `stop_after`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.metrics: list[dict[str, torch.Tensor | float]] = []
        self.turns: list[int] = []
        self.turn = 0
        self.stop_after = 0
        self.graphs: set[str] = set()

    def add(self, result: Result) -> None:
        for name, value in result.metrics.items():
            if isinstance(value, torch.Tensor) and value.requires_grad:
                self.graphs.add(name)
        metrics = {
            name: value.detach().clone() if isinstance(value, torch.Tensor) else value
            for name, value in result.metrics.items()
        }
        self.metrics.append(metrics)
        self.turns.append(self.turn)
        if len(self.metrics) == self.stop_after:
            self.clock.stop = True


class RecordingActor(Actor):
    """Keeps a copy of all actions, and counts the steps that the clock should count."""

    def __init__(
        self,
        env: Env,
        learner: AnyLearner,
        agent: Agent,
        buffer: AnyBuffer,
        clock: Clock,
    ) -> None:
        super().__init__(env, learner, agent, buffer, clock)
        self.actions: list[Array] = []
        self.valid_steps = 0

    def step(self) -> Step:
        step = super().step()
        self.actions.append(to_host(step.action).copy())
        self.valid_steps += int(step.valid.sum())
        return step


class Trial:
    """One learner on one environment under the synchronous loop, built like a run.

    Args:
        env: the environment; default: a new main environment of the subject.
        process: the seed of the generators of the process; default: the seed of the run.
        convert: wraps the environment, after its signals were added.
    """

    def __init__(
        self,
        subject: Subject,
        env: Env | None = None,
        *,
        seed: int = 0,
        env_seed: int = 7,
        total: int = TOTAL,
        optimizer: OptimizerFactory = Optimizer,
        process: int | None = None,
        convert: Callable[[Env], Env] | None = None,
    ) -> None:
        env = subject.make_main_env() if env is None else env
        seeds = Seeds(seed)
        seed_globals(Seeds(seed if process is None else process).child("globals"))
        env = with_signals(env, subject.cls)
        self.env = env = env if convert is None else convert(env)
        self.clock = Clock(total)
        self.dataset = dataset_of(subject.cls, env.spec, seeds)
        self.learner = subject.learner(env.spec, seeds, optimizer, self.dataset)
        self.agent = self.learner.agent()
        self.buffer = fit_device(self.learner.buffer(), env.spec)
        self.actor = RecordingActor(env, self.learner, self.agent, self.buffer, self.clock)
        self.actor.reset(env_seed)
        self.updates = Updates(self.clock)
        self.runner = Sync(self.actor, self.clock)

    @property
    def turns(self) -> int:
        """The number of vector steps so far."""
        return self.updates.turn

    def run(self, turns: int) -> Trial:
        """Continue until vector step `turns` or until the clock stops; due batches come first."""
        train(self.learner, self.buffer, self.clock, self.updates)
        while self.turns < turns and not self.clock.stop:
            self.updates.turn += 1
            step_and_train(self.actor, self.clock, self.updates)
        return self

    def run_updates(self, count: int, budget: int) -> bool:
        """Continue to the end of the turn of update `count`; return False if it takes more than `budget` env steps."""
        while len(self.updates.metrics) < count:
            if self.actor.valid_steps >= budget:
                return False
            self.run(self.turns + 1)
        return True

    def state(self) -> dict[str, State]:
        """Return the content of a checkpoint of a run."""
        return self.runner.state_dict()

    def resume(self, components: Mapping[str, State], turns: int) -> Trial:
        """Continue from a checkpoint made after `turns` vector steps."""
        self.runner.load_state_dict(dict(components))
        self.updates.turn = turns
        return self

    def behavior(self, turns: int = 0, updates: int = 0) -> Leaves:
        """Return actions and metrics after `turns` vector steps and `updates` updates, and the current weights."""
        return leaves(
            {
                "actions": self.actor.actions[turns:],
                "metrics": self.updates.metrics[updates:],
                "weights": self.agent.weights(),
            }
        )

    def learner_state(self) -> Leaves:
        """Return the whole current state of the learner."""
        return leaves(self.learner.state_dict())
