"""The synchronous runner and its loop; the other runners use the functions of this loop, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import torch

from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import AnyBuffer, AnyLearner, Env
from rlplug_core.seeds import global_state, load_global_state
from rlplug_core.types import Episode, Result, State


def loop(
    actor: Actor,
    clock: Clock,
    meter: Meter,
    poll: Callable[[], None],
) -> None:
    """Train until the clock is done.

    The first call of `train` is for a resumed run: it takes the batches that were ready when the earlier process
    stopped.

    Args:
        actor: with its learner and buffer.
        clock: counts env steps and updates.
        meter: collects metrics.
        poll: called before every vector step and at the end; logs, evaluates, saves, and may set `clock.stop`.
    """
    train(actor.learner, actor.buffer, clock, meter)
    while not clock.stop:
        poll()
        if clock.done:
            break
        step_and_train(actor, clock, meter)


def step_and_train(actor: Actor, clock: Clock, meter: Meter) -> None:
    """Take one vector step, then update with every batch that is ready."""
    step = actor.step()
    actor.buffer.add(step)
    train(actor.learner, actor.buffer, clock, meter)


def train(
    learner: AnyLearner,
    buffer: AnyBuffer,
    clock: Clock,
    meter: Meter,
) -> None:
    """Update with every batch that is ready. A stop takes effect between two batches."""
    for batch in buffer.batches(clock):
        result = learner.update(batch, clock)
        buffer.feedback(batch, result)
        clock.updates += 1
        meter.add(result)
        if clock.stop:
            return


class Meter:
    """Keeps the metrics of recent updates as tensors and averages them on request, so updates do not wait for a GPU."""

    def __init__(self, recent: int = 256) -> None:
        self.results: deque[Mapping[str, torch.Tensor | float]] = deque(maxlen=recent)

    def add(self, result: Result) -> None:
        self.results.append(result.metrics)

    def flush(self) -> dict[str, float]:
        """Return the mean of every metric over the recent updates since the last flush."""
        columns = self.state_dict()
        self.results.clear()
        return {name: sum(values) / len(values) for name, (_, values) in columns.items()}

    def state_dict(self) -> dict[str, list[list[float]]]:
        """Return for every metric the numbers of the updates that reported it, and its values."""
        updates: dict[str, list[float]] = {}
        values: dict[str, list[torch.Tensor | float]] = {}
        for number, metrics in enumerate(self.results):
            for name, value in metrics.items():
                updates.setdefault(name, []).append(number)
                values.setdefault(name, []).append(value)
        return {name: [numbers, _to_floats(values[name])] for name, numbers in updates.items()}

    def load_state_dict(self, state: Mapping[str, list[list[float]]]) -> None:
        updates: dict[float, dict[str, float]] = {}
        for name, (numbers, values) in state.items():
            for number, value in zip(numbers, values, strict=True):
                updates.setdefault(number, {})[name] = value
        self.results.clear()
        self.results.extend(
            updates.get(number, {}) for number in range(int(max(updates, default=-1)) + 1)
        )


def state_of(actor: Actor, meter: Meter) -> State:
    """Return the state of one learner's loop: learner, buffer, actor, metrics, and global random generators."""
    return {
        "learner": actor.learner.state_dict(),
        "buffer": actor.buffer.state_dict(),
        "actor": actor.state_dict(),
        "meter": meter.state_dict(),
        "globals": global_state(),
    }


def load_state(actor: Actor, meter: Meter, state: State) -> None:
    """Load a state that `state_of` returned."""
    actor.learner.load_state_dict(state["learner"])
    actor.buffer.load_state_dict(state["buffer"])
    actor.load_state_dict(state["actor"])
    meter.load_state_dict(state["meter"])
    load_global_state(state["globals"])


class Sync:
    """The runner with one process, one learner and one actor."""

    name = "sync"

    def __init__(
        self,
        actor: Actor,
        clock: Clock,
        make_env: Callable[[], Env] | None = None,
    ) -> None:
        """Prepare to train.

        Args:
            actor: with its learner and buffer.
            clock: the clock of the run.
            make_env: if given, every checkpoint replaces the environments with new ones (`--resume-exact`).
        """
        self.actor = actor
        self.clock = clock
        self.make_env = make_env
        self.learner = actor.learner
        #: Why a resume is not bit-exact; "" if it is.
        self.inexact = "" if make_env else actor.env.spec.inexact
        self.on_device = actor.env.spec.device is not None
        self.meter = Meter()

    def run(self, poll: Callable[[], None]) -> None:
        """Train until the clock is done, calling `poll` before every vector step and at the end."""
        loop(self.actor, self.clock, self.meter, poll)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return [(steps, 0, episode) for steps, episode in self.actor.take_episodes()]

    def metrics(self) -> Mapping[str, float]:
        return self.meter.flush()

    def configure(self, settings: Mapping[str, object]) -> None:
        complete(self.actor.env).configure(settings)

    def snapshot(self) -> AnyLearner:
        return self.learner

    def replace_envs(self, settings: Mapping[str, object]) -> None:
        """Continue with new environments after a checkpoint, as a process does that resumes from it.

        Args:
            settings: the current settings of the environments.
        """
        if self.make_env is None:
            return
        state = self.actor.state_dict()
        generators = global_state()
        self.actor.env.close()
        self.actor.env = self.make_env()
        # A resumed process resets once before it loads a state, too; some environments count resets.
        self.actor.env.reset(self.actor.seed)
        if settings:
            self.configure(settings)
        self.actor.load_state_dict(state)
        load_global_state(generators)

    def state_dict(self) -> State:
        return {"clock": self.clock.state_dict(), **state_of(self.actor, self.meter)}

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        load_state(self.actor, self.meter, state)

    def close(self) -> None:
        self.actor.env.close()


def _to_floats(values: list[torch.Tensor | float]) -> list[float]:
    """Return values as floats; all tensors are read from the device at once."""
    if any(isinstance(value, torch.Tensor) for value in values):
        return torch.stack([torch.as_tensor(value).detach() for value in values]).tolist()
    return [float(value) for value in values]
