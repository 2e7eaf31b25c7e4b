"""The errors that a user can see: each is one clear sentence with an exit code and what to type next.

The tree, with exit codes:

    RlplugError           the run or the command failed                     exit 1
    ├── WorkerFailed      a worker process raised, hung or was killed
    ├── BadCheckpoint     no readable checkpoint is left
    ├── BadFile           a file of a run is damaged or has wrong content
    ├── BadEnv            an environment broke its contract
    ├── NonFinite         a loss or a gradient is NaN or infinite
    ├── NotWritten        a file of a run cannot be written, as on a full disk
    ├── UsageError        the request cannot be done                        exit 2
    │   ├── Untrusted     it would run code that you have not trusted
    │   ├── UnknownEnv    no provider knows the environment id
    │   └── BadConfig     an option has a wrong name, type or range
    ├── PluginError       a plugin is broken, disabled or incompatible      exit 3
    │   └── MissingPackage  a package that the plugin needs is not installed
    └── Interrupted       stopped by a signal, after a checkpoint           exit 128 + its number

    KeyboardInterrupt
    └── Stopped           a second signal: at once, without a checkpoint    exit 128 + its number
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


class RlplugError(Exception):
    """The base of all errors that end in one sentence instead of a traceback."""

    exit_code = 1


class WorkerFailed(RlplugError):
    """A worker process raised, hung or was killed; `details` is its traceback or its signal's name."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details


class BadCheckpoint(RlplugError):
    """A checkpoint is missing, incomplete or changed, and no earlier one is readable."""


class BadFile(RlplugError):
    """A file of a run is missing, damaged, a link, a device or too large; `reason` says which, and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}")
        self.path = path
        self.reason = reason


class BadEnv(RlplugError):
    """An environment broke its contract (an ignored masked reset, a wrong shape, an undeclared autoreset mode)."""


class NonFinite(RlplugError):
    """A loss or a gradient is NaN or infinite; `what` names the optimizer and the step, without advice."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what}; {advice}" if advice else what)
        self.what = what


class NotWritten(RlplugError):
    """A file of a run cannot be written; `what` names it and the reason, `remedy` says what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


class UsageError(RlplugError):
    """The command or its options are wrong."""

    exit_code = 2


class Untrusted(UsageError):
    """The request would run code that came with a run; this account did not write it, or it has changed since."""


class UnknownEnv(UsageError):
    """No provider knows the environment id."""


class BadConfig(UsageError):
    """An option has a wrong name, type or range."""


class PluginError(RlplugError):
    """A plugin is broken, disabled or incompatible."""

    exit_code = 3


class MissingPackage(PluginError):
    """A package that a plugin needs is not installed; the message has the command that installs it."""


class Interrupted(RlplugError):
    """The run was stopped by a signal, after a checkpoint."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


class Stopped(KeyboardInterrupt):
    """A second signal came before the checkpoint of the first one; `except Exception` does not catch it."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'a' or 'b'?"` with the nearest known words, or an empty string."""
    from difflib import get_close_matches  # 4 ms, and most input is right

    lower = {name.lower(): name for name in known}
    near = [
        f"'{lower[match]}'" for match in get_close_matches(word.lower(), lower, n=3, cutoff=0.6)
    ]
    return f"; did you mean {' or '.join(near)}?" if near else ""


#: The most characters of a sentence on a terminal, with any foreign text in it.
LONGEST = 4000


def warn(sentence: str) -> None:
    """Print a sentence that is not an error to standard error; do nothing if it is closed."""
    if sys.stderr is None or getattr(sys.stderr, "closed", False):
        return
    print(f"rlplug: {plain(sentence, LONGEST)}", file=sys.stderr)  # noqa: T201


def clean(text: str) -> str:
    """Return foreign text for a terminal: without control characters except line ends, so without escape codes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def quote_all(names: Iterable[object]) -> str:
    """Return names as a part of a sentence: `'a', 'b' and 'c'`; "" for no names."""
    *others, last = [f"'{plain(str(name))}'" for name in names] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def plain(text: str, limit: int = 200) -> str:
    """Return foreign text as a part of a sentence: cleaned, in one line of at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
