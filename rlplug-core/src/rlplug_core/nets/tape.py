"""A tape: rules one after the other, up to a network's outputs and down to the slopes of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.nets.layer_rules import Affine, Elementwise, Rule, Slopes
from rlplug_core.types import Array

#: A rule on the way down: its number, itself, the places of its parameters, and whether slopes are wanted at its
#: inputs and at its parameters.
Stop: TypeAlias = tuple[int, Rule, slice, bool, bool]


class Tape:
    """A chain of rules, itself a rule.

    Args:
        rules: first to last; a parameter may occur in several of them.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = fused(rules)
        self.parameters: list[nn.Parameter] = [one for rule in self.rules for one in rule.parameters]

    def look(self) -> None:
        """Take views of the parameters, wherever they lie now."""
        for rule in self.rules:
            rule.look()

    def forward(self, values: Array) -> Array:
        """The outputs alone, when nobody will ask for slopes."""
        for rule in self.rules:
            values = rule.up(values)[0]
        return values

    def up(self, values: Array) -> tuple[Array, list[object]]:
        """Outputs, and what `down` and `slopes` need of this pass."""
        all_kept = []
        for rule in self.rules:
            values, kept = rule.up(values)
            all_kept.append(kept)
        return values, all_kept

    def down(self, slopes: Array, kept: list[Any], inputs: bool, weights: bool) -> Slopes:
        wanted = [weights] * len(self.parameters)
        return self.slopes(slopes, kept, inputs, wanted)  # type: ignore[return-value] # none is missing where all are wanted

    def slopes(
        self, slopes: Array, kept: list[object], inputs: bool, wanted: Sequence[bool]
    ) -> tuple[Array | None, list[Array | None]]:
        """Slopes at the outputs to those at the inputs, if wanted, and at the parameters for which `wanted` says so."""
        return self.along(self.way(inputs, wanted), slopes, kept, inputs)

    def way(self, inputs: bool, wanted: Sequence[bool]) -> list[Stop]:
        """The rules that have something to find, last to first; nothing is worked out below them."""
        way: list[Stop] = []
        begin, below = 0, inputs
        for number, rule in enumerate(self.rules):
            end = begin + len(rule.parameters)
            weights = any(wanted[begin:end])
            if below or weights:
                way.append((number, rule, slice(begin, end), below, weights))
            begin, below = end, below or weights
        return way[::-1]

    def along(
        self, way: list[Stop], slopes: Array, kept: list[object], inputs: bool
    ) -> tuple[Array | None, list[Array | None]]:
        """Compute `slopes` along a way that was found before."""
        found: list[Array | None] = [None] * len(self.parameters)
        passed: Array | None = slopes
        for number, rule, place, below, weights in way:
            assert passed is not None
            passed, own = rule.down(passed, kept[number], below, weights)
            if weights:
                found[place] = own
        return passed if inputs else None, found


def fused(rules: Sequence[Rule]) -> list[Rule]:
    """The same rules, a linear layer and the function behind it as one."""
    found: list[Rule] = []
    for rule in rules:
        last = found[-1] if found else None
        if isinstance(rule, Elementwise) and isinstance(last, Affine) and last.then is None:
            found[-1] = Affine(last.layer, rule)
        else:
            found.append(rule)
    return found


class Beside:
    """Tapes on the same inputs, their outputs side by side."""

    def __init__(self, tapes: Sequence[Tape]) -> None:
        self.tapes = list(tapes)
        self.parameters = [one for tape in self.tapes for one in tape.parameters]

    def look(self) -> None:
        """Take views of the parameters, wherever they lie now."""
        for tape in self.tapes:
            tape.look()

    def up(self, values: Array) -> tuple[Array, tuple[list[int], list[object]]]:
        outputs, kept = zip(*(tape.up(values) for tape in self.tapes), strict=True)
        widths = np.cumsum([each.shape[1] for each in outputs])[:-1].tolist()
        return np.concatenate(outputs, 1), (widths, list(kept))

    def down(self, slopes: Array, kept: tuple[list[int], list[Any]], inputs: bool, weights: bool) -> Slopes:
        parts = np.split(slopes, kept[0], 1)
        found = [
            tape.down(part, own, inputs, weights) for tape, part, own in zip(self.tapes, parts, kept[1], strict=True)
        ]
        return _total([own for own, _ in found]) if inputs else None, [one for _, own in found for one in own]


class Dueling:
    """Streams of a value and of advantages to V + A - mean A (Wang et al., 2016, arXiv:1511.06581, eq. 9).

    Args:
        advantage: features to [B, actions * atoms].
        value: features to [B, atoms].
    """

    def __init__(self, advantage: Tape, value: Tape, actions: int) -> None:
        self.advantage, self.value, self.actions = advantage, value, actions
        self.parameters = [*advantage.parameters, *value.parameters]

    def look(self) -> None:
        """Take views of the parameters, wherever they lie now."""
        self.advantage.look()
        self.value.look()

    def up(self, values: Array) -> tuple[Array, tuple[list[object], list[object]]]:
        (advantage, on_advantage), (value, on_value) = self.advantage.up(values), self.value.up(values)
        apart = advantage.reshape(len(values), self.actions, -1)
        outputs = value[:, None] + (apart - apart.mean(1, keepdims=True))
        return outputs.reshape(advantage.shape), (on_advantage, on_value)

    def down(self, slopes: Array, kept: tuple[list[Any], list[Any]], inputs: bool, weights: bool) -> Slopes:
        apart = slopes.reshape(len(slopes), self.actions, -1)
        centred = (apart - apart.mean(1, keepdims=True)).reshape(slopes.shape)
        by_advantage, own = self.advantage.down(centred, kept[0], inputs, weights)
        by_value, further = self.value.down(apart.sum(1), kept[1], inputs, weights)
        return _total([by_advantage, by_value]) if inputs else None, [*own, *further]


def _total(parts: Sequence[Array | None]) -> Array:
    total: Array = np.sum([part for part in parts if part is not None], 0)
    return total
