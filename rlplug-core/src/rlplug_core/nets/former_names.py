"""Former names of methods, which stay for one version."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


def former_method(old: str, new: str) -> Callable[..., Any]:
    """Return a method for the name `old` that warns and calls the method `new`."""

    def method(self: object, *args: Any, **named: Any) -> Any:
        message = f"{type(self).__name__}.{old} is now {new}; the next version removes the old name"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, new)(*args, **named)

    return method
