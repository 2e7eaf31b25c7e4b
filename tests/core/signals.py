"""An environment with signals in its info, and learners that compare each signal with its step."""

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
    """Return a signal that identifies the place and the action of a step."""
    return (obs * np.arange(1, 6, dtype=np.float32)).sum(-1) + 10 * action


class Costly(Chain):
    """A chain with two signals: a number at every step, and two numbers after each action 1."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.latest: dict[str, list[Any]] = {}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        cost = cost_of(self.observe(), action)
        self.latest = {
            "cost": cost.tolist(),
            "pair": [np.array([number, -number]) if act else None for number, act in zip(cost, action, strict=True)],
        }
        return super().move(action)

    def info(self, key: str) -> list[Any]:
        return self.latest.get(key, [None] * self.num_envs)

    def info_names(self) -> list[str]:
        return sorted(self.latest)


class UnreadInfo(Costly):
    """Raises when its info is read."""

    def info(self, key: str) -> list[Any]:
        raise AssertionError(f"no learner named {key}")


def check(obs: Any, action: Any, extras: dict[str, Any]) -> None:
    obs, action, cost, pair = (np.asarray(array) for array in (obs, action, extras["cost"], extras["pair"]))
    expected = cost_of(obs, action)
    assert np.array_equal(cost, expected.astype(np.float32)), (cost, expected)
    assert np.array_equal(pair, np.stack([expected * action, -expected * action], -1)), pair


class CheckedSteps(RolloutBuffer):
    def add(self, step: Step, source: int = 0) -> None:
        check(step.obs, step.action, step.extras)
        super().add(step, source)


class ChecksSignals(Tiny):
    """An actor-critic with both signals."""

    signals: ClassVar[Any] = {"cost": None, "pair": np.zeros(2)}

    def buffer(self) -> RolloutBuffer:
        return CheckedSteps(self.config.n_steps)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        check(batch.obs[:-1], batch.action, batch.extras)
        return super().learn(batch, now, clock)


class ChecksSignalsQ(TinyQ):
    """Q-learning with both signals."""

    signals: ClassVar[Any] = ChecksSignals.signals

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        check(batch.obs, batch.action, batch.extras)
        return super().learn(batch, now, clock)


class NeedsDanger(Tiny):
    """Names a signal that no environment gives."""

    signals: ClassVar[Any] = ("danger",)


class NeedsPair(Tiny):
    """Needs a signal at every step that some steps lack."""

    signals: ClassVar[Any] = ("pair",)


class ClashesWithExtras(Tiny):
    """Names a signal as its agent names an extra."""

    signals: ClassVar[Any] = {"log_prob": 0.0}


CHECKS_SIGNALS, CHECKS_SIGNALS_Q, NEEDS_DANGER, NEEDS_PAIR, CLASHES_WITH_EXTRAS = (
    f"{HERE}:{name}" for name in ("ChecksSignals", "ChecksSignalsQ", "NeedsDanger", "NeedsPair", "ClashesWithExtras")
)
COSTLY, UNREAD_INFO = f"{HERE}:Costly", f"{HERE}:UnreadInfo"
