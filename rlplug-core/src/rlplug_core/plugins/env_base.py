"""`EnvBase`: optional methods of environments, with defaults; `complete` adds them to environments without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from rlplug_core.errors import UsageError
from rlplug_core.protocols import Env, Show
from rlplug_core.types import Array, GymEnv, Obs, Space, Spec, State


class EnvBase:
    """Optional methods of an environment with their defaults.

    An environment may inherit it and override some methods, or inherit nothing and have the methods that it needs.
    """

    spec: Spec
    #: Frames per second at normal speed.
    fps: float = 30.0
    #: The threads that step the environments; more processes would not make them faster. 0 if there are none.
    threads: int = 0

    @property
    def source(self) -> Spec:
        """Return the spec of the bare environment, inside all wrappers."""
        return self.spec

    @property
    def action_space(self) -> Space:
        """Return the actions of the bare environment, as its documentation describes them."""
        return self.spec.action

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        """Return what agents see for observations [B, ...] of the bare environment; `is_first` [B] marks new episodes.

        A wrapper that changes observations returns a fresh array.
        """
        return obs

    def reward(self, reward: Array) -> Array:
        """Return the rewards [B] that agents get for rewards of the bare environment; a fresh array if they differ."""
        return reward

    def translate(self, action: Array) -> object:
        """Return canonical actions [N, ...] in the form of the bare environment; parts as dictionaries and tuples."""
        return action

    def learned(self) -> State:
        """Return copies of the statistics that this and the inner wrappers learned, for any number of environments."""
        return {}

    def freeze(self, state: State) -> None:
        """Use the `learned` statistics of another environment and stop learning; called before an evaluation."""

    def info(self, key: str) -> list[Any]:
        """Return the value of `key` in the last step's `info` for each environment; None if it has no such key."""
        return [None] * self.spec.num_envs

    def info_names(self) -> list[str]:
        """Return the keys of the last step's `info`, of all environments together."""
        return []

    def info_tensor(self, key: str) -> Tensor | None:
        """Return the values [N, ...] of `key` in the last step's `info` on the device; None without such tensors."""
        return None

    def row_bytes(self) -> int:
        """Return the bytes of one row's state on its device; 0 if they are not known. It may reset the rows."""
        return 0

    def running_returns(self) -> Array | None:
        """Return the sum of untransformed rewards of each running episode [N]; None if it is unknown."""
        return None

    def show(self, show: Show) -> None:
        """Call `show` for the first environment after every reset and step; called before the first reset."""
        raise UsageError(
            f"{self.spec.id} has no frames to show; rlplug evaluate plays it without them"
        )

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps at the latest; called before the first reset."""
        raise UsageError(
            f"{self.spec.id} cannot cut its episodes after a number of steps: it has no 'limit'"
        )

    def configure(self, settings: Mapping[str, object]) -> None:
        """Set attributes, in each environment from its next reset on: no episode changes while it runs."""
        raise UsageError(
            f"{self.spec.id} cannot have {', '.join(map(repr, settings))} set while it trains: it has no 'configure', "
            "as single Gymnasium environments have"
        )

    def inside(self, wrap: Callable[[GymEnv], GymEnv]) -> Env:
        """Return the same environments, each in `wrap`; they take this one's place before the first reset."""
        raise UsageError(
            f"this wrapper goes around each environment of {self.spec.id} itself, below rlplug's own wrappers: put it "
            "first"
        )


class Completed(EnvBase):
    """The optional methods of an environment that inherits nothing: those that it has, else the defaults."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.spec = env.spec
        self.fps = getattr(env, "fps", EnvBase.fps)
        self.threads = getattr(env, "threads", EnvBase.threads)

    @property
    def source(self) -> Spec:
        return getattr(self.env, "source", self.spec)

    @property
    def action_space(self) -> Space:
        return getattr(self.env, "action_space", self.spec.action)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        # Only a wrapper has a `source`; a bare environment may use the name `observe` for something else.
        wrapper = self.env if hasattr(self.env, "source") else None
        return getattr(wrapper, "observe", super().observe)(obs, is_first)

    def reward(self, reward: Array) -> Array:
        return getattr(self.env, "reward", super().reward)(reward)

    def translate(self, action: Array) -> object:
        return getattr(self.env, "translate", super().translate)(action)

    def learned(self) -> State:
        return getattr(self.env, "learned", super().learned)()

    def freeze(self, state: State) -> None:
        getattr(self.env, "freeze", super().freeze)(state)

    def info(self, key: str) -> list[Any]:
        return getattr(self.env, "info", super().info)(key)

    def info_names(self) -> list[str]:
        return getattr(self.env, "info_names", super().info_names)()

    def info_tensor(self, key: str) -> Tensor | None:
        return getattr(self.env, "info_tensor", super().info_tensor)(key)

    def row_bytes(self) -> int:
        return getattr(self.env, "row_bytes", super().row_bytes)()

    def running_returns(self) -> Array | None:
        return getattr(self.env, "running_returns", super().running_returns)()

    def show(self, show: Show) -> None:
        getattr(self.env, "show", super().show)(show)

    def limit(self, steps: int) -> None:
        getattr(self.env, "limit", super().limit)(steps)

    def configure(self, settings: Mapping[str, object]) -> None:
        getattr(self.env, "configure", super().configure)(settings)

    def inside(self, wrap: Callable[[GymEnv], GymEnv]) -> Env:
        return getattr(self.env, "inside", super().inside)(wrap)


def complete(env: Env) -> EnvBase:
    """Return an environment with all optional methods: `env` itself if it inherits them."""
    return env if isinstance(env, EnvBase) else Completed(env)
