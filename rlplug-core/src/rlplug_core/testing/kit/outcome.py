"""The outcomes of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

#: `warned` is a failure of a provisional check, `expected` a failure that the author declared with a reason.
Status: TypeAlias = Literal["passed", "failed", "skipped", "warned", "expected"]


class Failed(AssertionError):
    """The plugin violates the check; the message describes its behavior."""


class Skipped(Exception):
    """The check does not apply to this plugin; the message has the reason."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        message: the reason if it did not pass.
        error: the exception that stopped it, for a traceback.
        blocked: whether it was skipped because a check that it depends on failed.
    """

    status: Status
    message: str = ""
    seconds: float = 0.0
    error: BaseException | None = None
    blocked: bool = False

    @property
    def broken(self) -> bool:
        """Return whether the check failed, in any category."""
        return self.status in ("failed", "warned", "expected")
