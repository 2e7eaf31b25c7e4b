"""The recorded options of a run include defaults, because a default can change."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlplug_core.config.options import Config
from rlplug_core.config.parse import convert
from rlplug_core.config.schema import flatten


@dataclass(frozen=True)
class Inner:
    hidden: tuple[int, ...] = (64, 64)
    bias: bool = True


@dataclass(frozen=True)
class Outer(Config):
    learning_rate: float = 0.1
    n_steps: int = 5
    inner: Inner = field(default_factory=Inner)


def test_flatten_includes_defaults() -> None:
    wanted = {"learning_rate": 0.1, "n_steps": 7, "inner.hidden": [64, 64], "inner.bias": False}
    assert flatten(convert(Outer, {"n_steps": 7, "inner.bias": False}, "x")) == wanted
    assert flatten(convert(Outer, wanted, "x")) == wanted
