"""Checks of population rules: right ones pass, and each wrong one fails its check."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import rlplug_core as rl
from rlplug_core.loop.population import Exchange, Truncation, TruncationConfig
from rlplug_core.testing import population_checks
from tests.tables import for_each


def score(member: rl.Member) -> float:
    return float(np.nan_to_num(member.scores[-1], nan=-np.inf))


class RightRule:
    """A right rule with state: the worst member copies the best one, and perturbs numbers every second time."""

    def __init__(self) -> None:
        self.calls = 0

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        self.calls += 1
        order = sorted(members, key=score)
        best = order[-1]
        losers = [member for member in order[:-1] if member is order[0] or score(member) == -np.inf]
        return {member.number: Exchange(best.number, self.options(best, space, generator)) for member in losers}

    def options(self, best: rl.Member, space: Any, generator: Any) -> dict[str, object]:
        rates = {name: best.options[name] for name in space if name in ("learning_rate", "clip_range")}
        return {name: float(value) * (1.5 if self.calls % 2 else 0.5) for name, value in rates.items()}  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, object]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]


class Global(RightRule):
    def options(self, best: rl.Member, space: Any, generator: Any) -> dict[str, object]:
        return {name: value * (1 + random.random()) for name, value in super().options(best, space, generator).items()}  # type: ignore[operator]


class Fresh(RightRule):
    """Draws from a generator that the system seeds."""

    def options(self, best: rl.Member, space: Any, generator: Any) -> dict[str, object]:
        return super().options(best, space, generator) | {next(iter(space)): np.random.default_rng().uniform(0.1, 0.4)}


class Unsaved(RightRule):
    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Binary(RightRule):
    def state_dict(self) -> dict[str, object]:
        return {"calls": np.arange(2)}


class Shared(RightRule):
    """Keeps its state in the class."""

    count: ClassVar[list[int]] = []

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        self.count.append(1)
        self.calls = len(self.count)
        return super().exchange(members, space, generator)


class Filed(RightRule):
    """Keeps its state in a file."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        with Path("calls.txt").open("a") as file:
            file.write("x")
        self.calls = len(Path("calls.txt").read_text())
        return super().exchange(members, space, generator)


class Unknown(RightRule):
    def options(self, best: rl.Member, space: Any, generator: Any) -> dict[str, object]:
        return {"learning_rate": 1e-3}


class Negative(RightRule):
    def options(self, best: rl.Member, space: Any, generator: Any) -> dict[str, object]:
        return {name: -value for name, value in super().options(best, space, generator).items()}  # type: ignore[operator]


class Fractional(RightRule):
    def options(self, best: rl.Member, space: Any, generator: Any) -> dict[str, object]:
        return {"n_epochs": best.options["n_epochs"] * 1.2} if "n_epochs" in space else {}  # type: ignore[operator]


class Itself(RightRule):
    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        exchanges = super().exchange(members, space, generator)
        return {member.number: Exchange(member.number, {}) for member in members} | exchanges


class Chained(RightRule):
    """The worst copies the second, which copies the best."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        order = sorted(members, key=score)
        return {member.number: Exchange(better.number, {}) for member, better in pairwise(order)}


class Naive(RightRule):
    """Takes NaN for the best score."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        best = max(members, key=lambda member: member.scores[-1])
        return {member.number: Exchange(best.number, {}) for member in members if member is not best}


class Forgets(RightRule):
    """Does not replace a failed member."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        exchanges = super().exchange(members, space, generator)
        return {number: change for number, change in exchanges.items() if score(members[number]) > -np.inf}


class Single(RightRule):
    """Replaces only one failed member."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        return dict(list(super().exchange(members, space, generator).items())[:1])


class Sorting(RightRule):
    """Changes its input."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        members.sort(key=score)
        return super().exchange(members, space, generator)


class Crowded(RightRule):
    """Needs more than two members."""

    def exchange(self, members: Any, space: Any, generator: Any) -> dict[int, Exchange]:
        _ = members[2]
        return super().exchange(members, space, generator)


@dataclass(frozen=True)
class HalfConfig(TruncationConfig):
    resample: float = 0.5


class Half(Truncation):
    """The truncation rule with random new values."""

    Config = HalfConfig


def failures(name: str) -> dict[str, str]:
    kit_checks = population_checks(name)
    return {check.name: check.outcome().message for check in kit_checks if check.outcome().status == "failed"}


@for_each("name", ["truncation", "truncation:share=0.5,factor=3", f"{__file__}:Half", f"{__file__}:RightRule"])
def test_right_rules_pass(name: str) -> None:
    outcomes = [check.outcome() for check in population_checks(name)]
    assert {outcome.status for outcome in outcomes} == {"passed"}, [outcome.message for outcome in outcomes]


@for_each(
    "name, check, message",
    [
        ("Global", "population-seed", "draws from a generator of the process"),
        ("Fresh", "population-seed", "draw only from the given generator"),
        ("Unsaved", "population-resume", "killed before the decision of chunk"),
        ("Binary", "population-exchanges", "its state is not JSON"),
        ("Shared", "population-seed", "keep no state outside of the rule"),
        ("Filed", "population-resume", "keep none elsewhere"),
        ("Unknown", "population-values", "in a search of clip_range only: the rule"),
        ("Negative", "population-values", "a new value has the wrong type: member"),
        ("Fractional", "population-values", "option 'n_epochs'"),
        ("Itself", "population-exchanges", "with itself and changes no option"),
        ("Chained", "population-exchanges", "which copies another member itself"),
        ("Naive", "population-exchanges", "which failed; copy another member"),
        ("Forgets", "population-failures", "does not replace a member that failed"),
        ("Single", "population-failures", "if all members except one fail"),
        ("Sorting", "population-inputs", "changes the members or the ranges"),
        ("Crowded", "population-exchanges", "failed: IndexError"),
    ],
)
def test_wrong_rules_fail_their_check(name: str, check: str, message: str) -> None:
    messages = failures(f"{__file__}:{name}")
    assert message in messages.get(check, ""), messages
