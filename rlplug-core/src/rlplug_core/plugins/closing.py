"""Environments are closed where what is made of them fails: they may be processes, windows or files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlplug_core.protocols import Env


@contextmanager
def closed_if_it_fails(env: Env) -> Iterator[None]:
    """Close `env` where the body of the `with` raises; else it stays open."""
    with ExitStack() as failing:
        failing.callback(env.close)
        yield
        failing.pop_all()
