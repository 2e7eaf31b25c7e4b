"""Parses the options of `compare` and `plot`."""

from __future__ import annotations

import math

from rlplug_core.errors import UsageError


def parse_label(label: str | None) -> list[str]:
    """Return the option names in `--label`."""
    return (
        [name.strip().replace("-", "_") for name in label.split(",") if name.strip()]
        if label
        else []
    )


def goals(words: tuple[str, ...]) -> dict[str, float]:
    """Return the target returns by environment; "" is for all others.

    Raises:
        UsageError: a word has no finite number.
    """
    returns = {}
    for word in words:
        env, _, number = word.rpartition("=")
        returns[env] = _number(number)
        if not math.isfinite(returns[env]):
            raise UsageError(
                f"--target {word}: expected a return, as in --target 475 or --target CartPole-v1=475"
            )
    return returns


def bounds(words: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Return the returns that count as 0 and as 1, by environment.

    Raises:
        UsageError: a word names no environment, or does not hold two finite numbers, the second above the first.
    """
    returns = {}
    for word in words:
        env, _, numbers = word.rpartition("=")
        low, _, high = numbers.partition(":")
        returns[env] = (_number(low), _number(high))
        if not env or not -math.inf < returns[env][0] < returns[env][1] < math.inf:
            raise UsageError(
                f"--normalize {word}: expected two returns, as in --normalize CartPole-v1=0:500"
            )
    return returns


def _number(text: str) -> float:
    """Return the number in a string, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan
