"""`Transform`: the base of wrappers, an environment around another one, to which it forwards everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from rlplug_core.config.options import Config
from rlplug_core.errors import UsageError, plain
from rlplug_core.plugins.env_base import EnvBase, complete
from rlplug_core.protocols import Env, Show
from rlplug_core.types import Array, Obs, Space, Spec, State, Timestep


class Transform(EnvBase):
    """The base of wrappers: override the methods that change. An entry point in `rlplug.wrappers` names the class:

        @dataclass(frozen=True)
        class ScaleConfig(Config):
            factor: Positive = 0.1  # factor of every reward

        class Scale(Transform):
            Config = ScaleConfig

            def __init__(self, env: Env, config: ScaleConfig) -> None:
                super().__init__(env)
                self.factor = config.factor

            def step(self, action: Array) -> Timestep:
                timestep = self.env.step(action)
                return with_reward(timestep, timestep.reward * self.factor)

    The environment below reuses its arrays and timesteps, so a wrapper must not write into them. Its own arrays must
    stay valid until the call after the next one, so two alternating ones are enough. A wrapper that changes
    observations sets `self.spec`, and converts those of a data set in `observe`; one that changes rewards converts
    those of a data set in `reward`. A wrapper with its own state adds it to both state methods. A wrapper with a memory
    asks `told` which agents of a world have a new observation. Statistics over all environments, such as moments, reach
    evaluations only through `learned` and `freeze`.
    """

    Config: ClassVar[type[object]] = Config

    def __init__(self, env: Env, config: object = None) -> None:
        """`config` is for subclasses that have options."""
        self.env = env
        self.spec = env.spec
        inner = complete(env)
        self._source = inner.source
        self.fps = inner.fps

    @property
    def source(self) -> Spec:
        return self._source

    def reset(self, seed: int) -> Timestep:
        return self.env.reset(seed)

    def step(self, action: Array) -> Timestep:
        return self.env.step(action)

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> State:
        """Return the environment's state as "env", and as "inexact" the reason why it cannot be captured, if so."""
        state = self.env.state_dict()
        return {"env": state} | ({"inexact": state["inexact"]} if "inexact" in state else {})

    def load_state_dict(self, state: State) -> None:
        """Continue from a state; if the bare environment's state was not captured, a reset follows."""
        if "inexact" not in state or is_wrapper(self.env):
            self.env.load_state_dict(state["env"])

    def learned(self) -> State:
        """Return the learned state of the wrappers below, for any number of environments; a wrapper adds its own."""
        return complete(self.env).learned()

    def freeze(self, state: State) -> None:
        """Set the learned state of the wrappers below and stop learning; each wrapper takes its own part."""
        freeze(self.env, state)

    def configure(self, settings: Mapping[str, object]) -> None:
        complete(self.env).configure(settings)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        """Return observations [B, ...] of the bare environment as they leave this wrapper."""
        return complete(self.env).observe(obs, is_first)

    def reward(self, reward: Array) -> Array:
        """Return rewards [B] of a data set as they leave this wrapper; a fresh array if it changes them."""
        return complete(self.env).reward(reward)

    def translate(self, action: Array) -> object:
        return complete(self.env).translate(action)

    @property
    def action_space(self) -> Space:
        return complete(self.env).action_space

    def info(self, key: str) -> list[Any]:
        return complete(self.env).info(key)

    def info_names(self) -> list[str]:
        return complete(self.env).info_names()

    def info_tensor(self, key: str) -> Tensor | None:
        return complete(self.env).info_tensor(key)

    def row_bytes(self) -> int:
        return complete(self.env).row_bytes()

    def running_returns(self) -> Array | None:
        return complete(self.env).running_returns()

    def show(self, show: Show) -> None:
        complete(self.env).show(show)

    def limit(self, steps: int) -> None:
        complete(self.env).limit(steps)


def is_wrapper(env: Env) -> bool:
    """Return whether an environment is a wrapper, which passes on the statistics of the wrappers below."""
    if isinstance(env, EnvBase):
        return isinstance(env, Transform)
    return hasattr(env, "learned")


def freeze(env: Env, state: State) -> None:
    """Set the learned state of the wrappers of an environment to that of another one, and stop learning.

    Raises:
        UsageError: the wrappers differ.
    """
    try:
        if state:
            complete(env).freeze(state)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"there is no {error}" if isinstance(error, KeyError) else plain(str(error))
        raise UsageError(
            f"what the run's wrappers learned does not fit those around {env.spec.id}: {problem}; evaluate it with the "
            "wrappers it was trained with"
        ) from error


def told(timestep: Timestep) -> Array | None:
    """Return the rows [N] with a new observation; None for all.

    An agent that waits for its turn, or left before the others, still has its old observation: a wrapper with a memory
    must return the same one again, or the transition would have another observation than the action.
    """
    if timestep.count == len(timestep.valid):
        return None
    rows: Array = timestep.valid | (timestep.is_first if timestep.turn is None else timestep.turn)
    return rows


def with_obs(timestep: Timestep, obs: Obs, final_obs: Obs) -> Timestep:
    """Return `timestep` with other observations; if its `obs` is its `final_obs`, pass one object as both."""
    return Timestep(
        obs=obs,
        final_obs=final_obs,
        reward=timestep.reward,
        terminated=timestep.terminated,
        truncated=timestep.truncated,
        is_first=timestep.is_first,
        valid=timestep.valid,
        episodes=timestep.episodes,
        ended=timestep.ended,
        count=timestep.count,
        turn=timestep.turn,
    )


def with_reward(timestep: Timestep, reward: Array) -> Timestep:
    """Return `timestep` with other rewards [N] float32; the returns in `episodes` stay those of the environment."""
    return Timestep(
        obs=timestep.obs,
        final_obs=timestep.final_obs,
        reward=reward,
        terminated=timestep.terminated,
        truncated=timestep.truncated,
        is_first=timestep.is_first,
        valid=timestep.valid,
        episodes=timestep.episodes,
        ended=timestep.ended,
        count=timestep.count,
        turn=timestep.turn,
    )
