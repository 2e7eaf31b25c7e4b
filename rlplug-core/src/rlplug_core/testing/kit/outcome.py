"""The outcomes of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

#: `warned` is the failure of a provisional check, `expected` one that the author expects and gave a reason for.
Status: TypeAlias = Literal["passed", "failed", "skipped", "warned", "expected"]


class Failed(AssertionError):
    """The plugin does not do what the check asks; the message says what it does instead."""


class Skipped(Exception):
    """The check does not apply to this plugin; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        message: why it did not pass.
        error: the exception that broke it off, for a traceback.
        blocked: whether it was skipped because something that it rests on is missing.
    """

    status: Status
    message: str = ""
    seconds: float = 0.0
    error: BaseException | None = None
    blocked: bool = False

    @property
    def broken(self) -> bool:
        """Return whether the check failed, whatever that counts for."""
        return self.status in ("failed", "warned", "expected")
