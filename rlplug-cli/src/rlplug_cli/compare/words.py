"""Parse what was typed for `compare` and `plot`."""

from __future__ import annotations

from rlplug_core.errors import UsageError


def named(label: str | None) -> list[str]:
    """The options of `--label`."""
    return [name.strip().replace("-", "_") for name in label.split(",") if name.strip()] if label else []


def goals(words: tuple[str, ...]) -> dict[str, float]:
    """The returns to reach by environment, the one for all under an empty name.

    Raises:
        UsageError: a word holds no number.
    """
    found = {}
    for word in words:
        env, _, number = word.rpartition("=")
        try:
            found[env] = float(number)
        except ValueError as error:
            raise UsageError(
                f"--target {word}: expected a return, as in --target 475 or --target CartPole-v1=475"
            ) from error
    return found


def bounds(words: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """The returns that count as 0 and as 1, by environment.

    Raises:
        UsageError: a word does not hold two numbers, the second above the first.
    """
    found = {}
    for word in words:
        env, _, numbers = word.rpartition("=")
        low, _, high = numbers.partition(":")
        try:
            found[env] = (float(low), float(high))
        except ValueError:
            found[env] = (0.0, 0.0)
        if not env or not found[env][0] < found[env][1]:
            raise UsageError(f"--normalize {word}: expected two returns, as in --normalize CartPole-v1=0:500")
    return found
