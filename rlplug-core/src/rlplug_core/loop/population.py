"""Populations of runs: the input and the checked decisions of a rule, and the rule of the original paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from rlplug_core.config.import_string import describe
from rlplug_core.config.options import Config, Fraction, Positive, Range, UnitInterval
from rlplug_core.errors import PluginError, RlplugError


@dataclass(frozen=True)
class Member:
    """A run of a population, at the end of a chunk.

    Attributes:
        number: its number, from 0.
        scores: the mean return of its evaluation at the end of each chunk; NaN if the chunk failed.
        options: the current values of the options that the population searches, by name.
    """

    number: int
    scores: tuple[float, ...]
    options: Mapping[str, object]

    @property
    def failed(self) -> bool:
        """Return whether it failed in the last chunk."""
        return math.isnan(self.scores[-1])


@dataclass(frozen=True)
class Exchange:
    """The change of a member between two chunks.

    Attributes:
        source: the number of the member that it takes the checkpoint of; its own number keeps its state.
        options: the values of options that change.
    """

    source: int
    options: Mapping[str, object]


@runtime_checkable
class PopulationRule(Protocol):
    """Steers a population of runs: the target of an `rlplug.populations` entry point, a class, built with its `Config`.

    If it is `Stateful`, its state, which must be JSON, is saved with the population.
    """

    def exchange(
        self,
        members: Sequence[Member],
        space: Mapping[str, Range],
        generator: np.random.Generator,
    ) -> Mapping[int, Exchange]:
        """Return the changes of members between two chunks, by member number; the others continue unchanged.

        Args:
            members: all members, in the order of their numbers.
            space: the ranges of the options that the population searches.
            generator: for random decisions; it depends on the seed and the number of the chunk only.
        """
        ...


def decide(
    rule: PopulationRule,
    words: str,
    members: Sequence[Member],
    space: Mapping[str, Range],
    generator: np.random.Generator,
) -> dict[int, Exchange]:
    """Return the decisions of a rule by member number, with plain values; arguments are those of `exchange`.

    Raises:
        PluginError: the rule, which the user named with `words`, raised or returned something else; or the member or
            the option does not exist, or the source failed or copies another member itself.
    """
    try:
        changes = rule.exchange(members, space, generator)
    except RlplugError:
        raise
    except Exception as error:  # a foreign rule may raise anything
        raise PluginError(f"the rule '{words}' failed: {describe(error)}") from error
    if not isinstance(changes, Mapping) or not all(
        isinstance(change, Exchange) for change in changes.values()
    ):
        raise PluginError(
            f"the rule '{words}' returned {type(changes).__name__}; return a dictionary from the numbers "
            "of members to rl.Exchange(source, options)"
        )
    for number, change in changes.items():
        _check_source(number, change.source, changes, members, f"the rule '{words}'")
        if unknown := sorted(set(change.options) - set(space)):
            raise PluginError(
                f"the rule '{words}' sets '{unknown[0]}', which has no range; it may set {', '.join(space)}"
            )
    return {int(number): _plain(changes[number]) for number in sorted(changes)}


def _check_source(
    number: int,
    source: int,
    changes: Mapping[int, Exchange],
    members: Sequence[Member],
    rule: str,
) -> None:
    """Raise PluginError if a member cannot copy a member."""
    count = len(members)
    sentence = f"{rule} lets member {number} copy member {source}"
    if number not in range(count) or source not in range(count):
        raise PluginError(f"{sentence}, but the members are 0 to {count - 1}")
    change = changes.get(source)
    if source != number and change is not None and change.source != source:
        raise PluginError(
            f"{sentence}, which copies another member itself; copy one that keeps its state"
        )
    if members[source].failed:
        raise PluginError(f"{sentence}, which failed; copy another member")


def _plain(exchange: Exchange) -> Exchange:
    """Return an exchange with Python's numbers instead of numpy's, so that it can be saved."""
    options = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in exchange.options.items()
    }
    return Exchange(int(exchange.source), options)


@dataclass(frozen=True)
class TruncationConfig(Config):
    """Options of `Truncation`."""

    # share of the population that copies, and of members that are copied
    share: UnitInterval = 0.2
    factor: Positive = 1.2  # a number is multiplied or divided by this
    resample: Fraction = 0.0  # probability of a new value from the range instead


class Truncation:
    """Population based training by truncation (Jaderberg et al., 2017, arXiv:1711.09846, section 4.1.1).

    Each of the worst members, and each that failed, takes the state and the options of one of the best, and perturbs
    the options.
    """

    Config = TruncationConfig

    def __init__(self, config: TruncationConfig) -> None:
        self.config = config

    def exchange(
        self,
        members: Sequence[Member],
        space: Mapping[str, Range],
        generator: np.random.Generator,
    ) -> dict[int, Exchange]:
        """Return the changes of the worst members."""
        count = min(max(1, round(self.config.share * len(members))), len(members) // 2)
        order = sorted(members, key=lambda member: (_rank(member), member.number))
        best = [member for member in order[len(order) - count :] if not member.failed]
        losers = [member for place, member in enumerate(order) if place < count or member.failed]
        changes = {}
        for member in losers if best else ():
            source = best[int(generator.integers(len(best)))]
            if _rank(source) > _rank(member):
                changes[member.number] = Exchange(
                    source.number,
                    {
                        name: self._explore(range, source.options[name], generator)
                        for name, range in space.items()
                    },
                )
        return changes

    def _explore(
        self,
        range: Range,
        value: object,
        generator: np.random.Generator,
    ) -> object:
        """Return another value near `value`, or with probability `resample` any value of the range.

        With the same value a copy would have the same random numbers too, and so repeat its source. A value that
        cannot move up or down, such as 0 of a uniform range, is drawn from the range.
        """
        chance, direction = generator.random(2)
        if chance < self.config.resample:
            return sample(range, generator)
        for upward in (direction < 0.5, direction >= 0.5):
            neighbor = self._neighbor(range, value, upward)
            if _plain_value(neighbor) != _plain_value(value):
                return neighbor
        return sample(range, generator)

    def _neighbor(self, range: Range, value: object, upward: bool) -> object:
        """Return the next value in a direction, which stays in the range."""
        if range.kind == "choice":
            choices = [_plain_value(choice) for choice in range.values]
            position = choices.index(_plain_value(value)) + (1 if upward else -1)
            return choices[min(max(position, 0), len(choices) - 1)]
        assert isinstance(value, int | float)
        low, high = range.values
        neighbor = value * self.config.factor if upward else value / self.config.factor
        if _is_whole(range):
            neighbor = (
                max(round(neighbor), value + 1) if upward else min(round(neighbor), value - 1)
            )
        neighbor = min(max(neighbor, low), high)
        return round(neighbor) if _is_whole(range) else neighbor


def _plain_value(value: object) -> object:
    """Return a list in place of a tuple: saved options have lists."""
    return list(value) if isinstance(value, tuple) else value


def _rank(member: Member) -> float:
    """Return a score that orders members; a failed one is the worst."""
    return -math.inf if member.failed else member.scores[-1]


def sample(range: Range, generator: np.random.Generator) -> object:
    """Return a random value of a range."""
    if range.kind == "choice":
        return range.values[int(generator.integers(len(range.values)))]
    low, high = range.values
    if range.kind == "log":
        value = float(np.exp(generator.uniform(math.log(low), math.log(high))))
    elif _is_whole(range):
        return int(generator.integers(low, high + 1))
    else:
        value = float(generator.uniform(low, high))
    value = min(max(value, low), high)
    return round(value) if _is_whole(range) else value


def _is_whole(range: Range) -> bool:
    """Return whether values of a range are integers."""
    return all(isinstance(bound, int) for bound in range.values) and range.kind != "uniform"
