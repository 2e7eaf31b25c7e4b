"""Checks of population rules: their exchanges, option values, random decisions and state."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from rlplug_core.config.options import (
    Config,
    Count,
    NonNegative,
    Positive,
    Range,
    UnitInterval,
    choice,
    integer,
    log,
    uniform,
)
from rlplug_core.config.parse import convert
from rlplug_core.errors import BadConfig, PluginError
from rlplug_core.loop.population import Exchange, Member, PopulationRule, decide, sample
from rlplug_core.plugins.spec import PartSpec, with_path
from rlplug_core.protocols import Stateful
from rlplug_core.seeds import preserve_generators
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.side_effects import check_generators

#: The numbers of chunks and members of a tested population.
CHUNKS = 6
MEMBERS = 5
Decisions = dict[int, Exchange]


@dataclass(frozen=True)
class KitConfig(Config):
    """The options of the members."""

    learning_rate: Positive = 1e-3
    gamma: UnitInterval = 0.99
    ent_coef: NonNegative = 0.01
    n_epochs: Count = 4
    activation: Literal["tanh", "relu", "elu"] = "tanh"
    clip_range: Positive = 0.2


SPACE: dict[str, Range] = {
    "learning_rate": log(1e-5, 1e-2),
    "gamma": uniform(0.9, 1.0),
    "ent_coef": uniform(0.0, 0.1),
    "n_epochs": integer(1, 8),
    "activation": choice("tanh", "relu", "elu"),
}
OTHER_SPACE: dict[str, Range] = {"clip_range": uniform(0.1, 0.4)}


class PopulationSubject:
    """A population rule, `NAME`, `NAME:option=value` or `./file.py:Class`."""

    def __init__(self, name: str) -> None:
        self.name = with_path(name)  # the checks change the working directory

    def build(self) -> PopulationRule:
        """Return a new rule.

        Raises:
            UsageError, PluginError: there is none, or it cannot be made.
        """
        rule = PartSpec.parse("rule", self.name).build()
        if not isinstance(rule, PopulationRule):
            raise PluginError(f"'{self.name}' made {type(rule).__name__}, without 'exchange'")
        return rule

    @cached_property
    def population(self) -> Population:
        """The decisions about a population, by one rule that was never stopped."""
        return Population(self, SPACE)


class Population:
    """A population that a rule steers for some chunks.

    In the third chunk a member fails. `inputs` has the members of each chunk, `decisions` the exchanges after it, and
    `states` the state of the rule after it.
    """

    def __init__(
        self,
        subject: PopulationSubject,
        space: Mapping[str, Range],
        count: int = MEMBERS,
    ) -> None:
        self.name = subject.name
        self.space = space
        self.inputs: list[list[Member]] = []
        self.decisions: list[Decisions] = []
        self.states: list[object] = []
        generator = np.random.default_rng(11)
        options = [
            {name: sample(bounds, generator) for name, bounds in space.items()}
            for _ in range(count)
        ]
        rule = subject.build()
        for chunk in range(CHUNKS):
            self.inputs.append(self._members(chunk, options))
            self.decisions.append(self.decide(rule, chunk, self.inputs[chunk]))
            self.states.append(state_of(rule))
            for number, exchange in self.decisions[-1].items():
                options[number] = {**options[number], **exchange.options}

    def _members(
        self,
        chunk: int,
        options: Sequence[Mapping[str, object]],
    ) -> list[Member]:
        """Return the members at the end of a chunk."""
        before = self.inputs[-1] if self.inputs else [Member(0, (), {})] * len(options)
        scores = np.random.default_rng([12, chunk]).normal(size=len(options)).round(3).tolist()
        if chunk == 2:
            # The first member, because `max` and `min` return a NaN only if it comes first.
            scores[0] = math.nan
        return [
            Member(number, (*previous.scores, score), dict(member_options))
            for number, (previous, score, member_options) in enumerate(
                zip(before, scores, options, strict=True)
            )
        ]

    def decide(
        self,
        rule: PopulationRule,
        chunk: int,
        members: Sequence[Member],
    ) -> Decisions:
        """Return the exchanges of members after a chunk; the rule gets copies.

        Raises:
            PluginError: the rule raised, or an exchange is not possible.
        """
        copies = copy.deepcopy(list(members))
        return decide(rule, self.name, copies, dict(self.space), generator_of(chunk))


def generator_of(chunk: int) -> np.random.Generator:
    """Return the generator for the random decisions after a chunk."""
    return np.random.default_rng([1, chunk + 1])


def state_of(rule: PopulationRule) -> object:
    """Return the state of a rule as a population saves it, or None.

    Raises:
        Failed: it is not JSON.
    """
    if not isinstance(rule, Stateful):
        return None
    try:
        return json.loads(json.dumps(rule.state_dict()))
    except (TypeError, ValueError) as error:
        raise Failed(f"its state is not JSON: {error}") from error


def exchanges(subject: PopulationSubject) -> None:
    """Members copy existing members that keep their own state and did not fail, or change their own options."""
    try:
        population = subject.population
        Population(subject, SPACE, 2)
    except PluginError as error:
        raise Failed(str(error)) from error
    for decisions in population.decisions:
        for number, exchange in decisions.items():
            if exchange.source == number and not exchange.options:
                raise Failed(
                    f"it exchanges member {number} with itself and changes no option; leave such members out"
                )


def values(subject: PopulationSubject) -> None:
    """Only options with a range change, and new values have the types of the options."""
    for decisions in subject.population.decisions:
        for number, exchange in decisions.items():
            try:
                convert(KitConfig, dict(exchange.options), f"member {number}")
            except BadConfig as error:
                raise Failed(f"a new value has the wrong type: {error}") from error
    try:
        Population(subject, OTHER_SPACE)
    except PluginError as error:
        raise Failed(f"in a search of {', '.join(OTHER_SPACE)} only: {error}") from error


def failures(subject: PopulationSubject) -> None:
    """A member that failed copies one that did not, also if all others failed."""
    population = subject.population
    exchange = population.decisions[2].get(0)
    if exchange is None or exchange.source == 0:
        raise Failed(
            "it does not replace a member that failed, with the score NaN; let it copy another one"
        )
    members = [
        Member(
            member.number,
            (*member.scores[:-1], 1.0 if member.number == 3 else math.nan),
            member.options,
        )
        for member in population.inputs[2]
    ]
    replaced = population.decide(load_rule(subject, population.states[1]), 2, members)
    not_replaced = [number for number in range(MEMBERS) if number != 3 and number not in replaced]
    if not_replaced:
        raise Failed(
            f"if all members except one fail, it does not replace member {not_replaced[0]}"
        )


def load_rule(subject: PopulationSubject, state: object) -> PopulationRule:
    """Return a new rule with a saved state, as in a population that continues."""
    rule = subject.build()
    if isinstance(rule, Stateful) and state is not None:
        rule.load_state_dict(copy.deepcopy(state))  # type: ignore[arg-type]
    return rule


def seed(subject: PopulationSubject) -> None:
    """Decisions depend only on members, ranges and the given generator; the process's generators stay unchanged."""
    population = subject.population
    with check_generators("use the given one"):
        again = Population(subject, SPACE)
    with preserve_generators():
        random.seed(5)
        np.random.seed(5)
        torch.manual_seed(5)
        seeded = Population(subject, SPACE)
    for repeated in (again, seeded):
        if repeated.decisions != population.decisions:
            raise Failed(
                "the same members, ranges and generator lead to other decisions; draw only from the given generator, "
                "and keep no state outside of the rule"
            )


def inputs(subject: PopulationSubject) -> None:
    """Members, their options and the ranges stay unchanged."""
    population = subject.population
    rule = subject.build()
    members = copy.deepcopy(population.inputs[0])
    space = dict(population.space)
    decide(rule, subject.name, members, space, generator_of(0))
    if members != population.inputs[0] or space != population.space:
        raise Failed("it changes the members or the ranges that it gets; copy them")


def resume(subject: PopulationSubject) -> None:
    """A population that was killed decides as if it had not been, also about an exchange that was not saved."""
    population = subject.population
    for chunk in range(1, CHUNKS):
        for moment in ("before", "after"):
            # The second time, state outside of the rule already contains the decision.
            rule = load_rule(subject, population.states[chunk - 1])
            decisions = population.decide(rule, chunk, population.inputs[chunk])
            if decisions != population.decisions[chunk]:
                raise Failed(
                    f"killed {moment} the decision of chunk {chunk + 1}, it decides otherwise; return the state that "
                    "decisions depend on from state_dict, and keep none elsewhere"
                )
