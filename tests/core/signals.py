"""An environment with signals in its info, and learners that hold every signal against the step it came with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlplug_core.batches import Rollout, Transitions
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Result, Step
from tests.core.fakes import Tiny, TinyQ

HERE = __file__


def cost_of(obs: Any, action: Any) -> Any:
    """The signal of a step: it says in which place which action was taken."""
    return (obs * np.arange(1, 6, dtype=np.float32)).sum(-1) + 10 * action


class Costly(Chain):
    """A chain with two signals: a number at every step, and two numbers after each action 1."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.told: dict[str, list[Any]] = {}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        cost = cost_of(self.observe(), action)
        self.told = {
            "cost": cost.tolist(),
            "pair": [np.array([one, -one]) if act else None for one, act in zip(cost, action, strict=True)],
        }
        return super().move(action)

    def info(self, key: str) -> list[Any]:
        return self.told.get(key, [None] * self.num_envs)

    def info_names(self) -> list[str]:
        return sorted(self.told)


class Unasked(Costly):
    """Fails when its info is read."""

    def info(self, key: str) -> list[Any]:
        raise AssertionError(f"no learner named {key}")


def check(obs: Any, action: Any, extras: dict[str, Any]) -> None:
    obs, action, cost, pair = (np.asarray(one) for one in (obs, action, extras["cost"], extras["pair"]))
    expected = cost_of(obs, action)
    assert np.array_equal(cost, expected.astype(np.float32)), (cost, expected)
    assert np.array_equal(pair, np.stack([expected * action, -expected * action], -1)), pair


class CheckedSteps(RolloutBuffer):
    def add(self, step: Step, source: int = 0) -> None:
        check(step.obs, step.action, step.extras)
        super().add(step, source)


class Watchful(Tiny):
    """An actor-critic with both signals."""

    signals: ClassVar[Any] = {"cost": None, "pair": np.zeros(2)}

    def buffer(self) -> RolloutBuffer:
        return CheckedSteps(self.config.n_steps)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        check(batch.obs[:-1], batch.action, batch.extras)
        return super().learn(batch, now, clock)


class WatchfulQ(TinyQ):
    """Q-learning with both signals."""

    signals: ClassVar[Any] = Watchful.signals

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        check(batch.obs, batch.action, batch.extras)
        return super().learn(batch, now, clock)


class Wants(Tiny):
    """Names a signal that no environment gives."""

    signals: ClassVar[Any] = ("danger",)


class WantsPair(Tiny):
    """Demands at every step what some steps lack."""

    signals: ClassVar[Any] = ("pair",)


class Clashes(Tiny):
    """Names what its agent writes."""

    signals: ClassVar[Any] = {"log_prob": 0.0}


WATCHFUL, WATCHFUL_Q, WANTS, WANTS_PAIR, CLASHES = (
    f"{HERE}:{name}" for name in ("Watchful", "WatchfulQ", "Wants", "WantsPair", "Clashes")
)
COSTLY, UNASKED = f"{HERE}:Costly", f"{HERE}:Unasked"
