"""`Transform`: an environment over another one that forwards everything; the base of wrappers."""

from __future__ import annotations

from typing import Any, ClassVar

from rlplug_core.config import Config
from rlplug_core.errors import UsageError
from rlplug_core.protocols import Env, SupportsLimit, SupportsObserve, SupportsTranslate
from rlplug_core.types import Array, Obs, Spec, State, Timestep


class Transform:
    """Overrides what it changes, and inherits the rest. Named by an entry point in the group `rlplug.wrappers`:

        @dataclass(frozen=True)
        class ScaleConfig(Config):
            factor: Positive = 0.1  # what every reward is multiplied by

        class Scale(Transform):
            Config = ScaleConfig

            def __init__(self, env: Env, config: ScaleConfig) -> None:
                super().__init__(env)
                self.factor = config.factor

            def step(self, action: Array) -> Timestep:
                now = self.env.step(action)
                return with_reward(now, now.reward * self.factor)

    What lies below hands out the same arrays and timesteps again: a wrapper writes into none of them. Its own arrays
    must stay valid until the second next call, so two in turn are enough. One that changes observations sets
    `self.spec`, and says in `observe` what becomes of them; one with a state of its own adds it to both state methods.
    """

    Config: ClassVar[type[Any]] = Config

    def __init__(self, env: Env, config: Any = None) -> None:
        """`config` is for subclasses that have options."""
        self.env = env
        self.spec = env.spec
        self.source: Spec = env.source if isinstance(env, SupportsObserve) else env.spec

    def reset(self, seed: int) -> Timestep:
        return self.env.reset(seed)

    def step(self, action: Array) -> Timestep:
        return self.env.step(action)

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State:
        """What the environment below holds as "env", or the reason alone why it cannot be captured, as "inexact"."""
        below = self.env.state_dict()
        return {"inexact": below["inexact"]} if "inexact" in below else {"env": below}

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state["env"])

    def observe(self, obs: Obs, first: Array) -> Obs:
        """The bare environment's observations [B, ...] as they leave this wrapper; a fresh array if it changes them."""
        return self.env.observe(obs, first) if isinstance(self.env, SupportsObserve) else obs

    def translate(self, action: Array) -> Any:
        """Canonical actions [N, ...] as the bare environment's documentation means them."""
        return self.env.translate(action) if isinstance(self.env, SupportsTranslate) else action

    def limit(self, steps: int) -> None:
        """Let episodes be cut after so many steps.

        Raises:
            UsageError: the environment below cannot do that.
        """
        if not isinstance(self.env, SupportsLimit):
            raise UsageError(f"{self.env.spec.id} cannot cut its episodes after a number of steps: it has no 'limit'")
        self.env.limit(steps)


def with_obs(now: Timestep, obs: Obs, final: Obs) -> Timestep:
    """`now` with other observations; `final` is the same object as `obs` where it was."""
    return Timestep(
        obs, final, now.reward, now.terminated, now.truncated, now.first, now.valid, now.episodes, now.ended, now.count
    )  # fmt: skip


def with_reward(now: Timestep, reward: Array) -> Timestep:
    """`now` with other rewards [N] float32; the returns in `now.episodes` stay what the environment gave."""
    return Timestep(
        now.obs, now.final, reward, now.terminated, now.truncated, now.first, now.valid, now.episodes, now.ended,
        now.count,
    )  # fmt: skip
