"""Environments with the interface of the old package gym raise errors that say what to change."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.errors import BadEnv
from rlplug_envs.vector import SerialEnvs


class New(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, False, False, {}


class NoSeed(New):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(1, np.float32)


class NoInfo(New):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32)


class FourValues(New):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, False, {}


class AnyArguments(New):
    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            NoSeed,
            r"Old-v0: its reset takes no argument 'seed', as in the old package gym; write reset\(self, \*, seed",
        ),
        (NoInfo, r"reset\(\) returned a ndarray; return two, .*the interface of the old package gym"),
        (FourValues, r"but four values, as in the old package gym: split its 'done' into terminated and truncated"),
    ],
)
def test_old_interface_raises(kind: type[New], message: str) -> None:
    with pytest.raises(BadEnv, match=message):
        SerialEnvs(kind, 1, "Old-v0")


@pytest.mark.parametrize("kind", [New, AnyArguments])
def test_new_interface_is_accepted(kind: type[New]) -> None:
    assert SerialEnvs(kind, 1, "New-v0").spec.inexact == ""
