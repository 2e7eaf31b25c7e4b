"""A tape: rules one after the other, up to a network's outputs and down to the slopes of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.nets.layer_rules import Affine, Elementwise, Own, Rule
from rlplug_core.types import Array

#: A rule on the way down: its number, itself, whether slopes are wanted at its inputs, and, if they are wanted at its
#: parameters, where they are added up: as what is not fresh, and as what is.
Stop: TypeAlias = tuple[int, Rule, bool, tuple[Own | None, Own | None]]


class Tape:
    """A chain of rules, itself a rule.

    Args:
        rules: first to last; a parameter may occur in several of them.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = fused(rules)
        self.parameters: list[nn.Parameter] = [
            one for rule in self.rules for one in rule.parameters
        ]

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

    def down(self, slopes: Array, kept: list[Any], inputs: bool, own: Own | None) -> Array | None:
        arrays = [None] * len(self.parameters) if own is None else own.arrays
        return self.along(
            self.way(inputs, arrays), slopes, kept, inputs, own is not None and own.fresh
        )

    def way(self, inputs: bool, arrays: Sequence[Array | None]) -> list[Stop]:
        """The rules that have something to find, last to first; nothing is worked out below them.

        Args:
            inputs: whether slopes are wanted at the inputs.
            arrays: where those of each parameter are added up, None where they are not wanted.
        """
        way: list[Stop] = []
        begin = 0
        below = inputs
        for number, rule in enumerate(self.rules):
            end = begin + len(rule.parameters)
            own = _own(rule, arrays[begin:end])
            if below or own[0] is not None:
                way.append((number, rule, below, own))
            begin = end
            below = below or own[0] is not None
        return way[::-1]

    def along(
        self, way: list[Stop], slopes: Array, kept: list[object], inputs: bool, fresh: bool
    ) -> Array | None:
        """Take `slopes` along a way that was found before; `fresh` says whether its arrays are all zero."""
        passed: Array | None = slopes
        for number, rule, below, own in way:
            assert passed is not None
            passed = rule.down(passed, kept[number], below, own[fresh])
        return passed if inputs else None


def _own(rule: Rule, arrays: Sequence[Array | None]) -> tuple[Own | None, Own | None]:
    """Return what a rule adds to, not fresh and fresh; slopes that nobody wants go into arrays of their own."""
    if all(one is None for one in arrays):
        return None, None
    known = zip(arrays, rule.parameters, strict=True)
    (kind, *_) = (one.dtype for one in arrays if one is not None)
    filled = [np.zeros(parameter.shape, kind) if one is None else one for one, parameter in known]
    return Own(filled, fresh=False), Own(filled, fresh=True)


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

    def down(
        self, slopes: Array, kept: tuple[list[int], list[Any]], inputs: bool, own: Own | None
    ) -> Array | None:
        parts = zip(
            self.tapes, np.split(slopes, kept[0], 1), kept[1], _parted(own, self.tapes), strict=True
        )
        below = [tape.down(part, told, inputs, into) for tape, part, told, into in parts]
        return _total(below) if inputs else None


class Dueling:
    """Streams of a value and of advantages to V + A - mean A (Wang et al., 2016, arXiv:1511.06581, eq. 9).

    Args:
        advantage: features to [B, actions * atoms].
        value: features to [B, atoms].
    """

    def __init__(self, advantage: Tape, value: Tape, actions: int) -> None:
        self.advantage = advantage
        self.value = value
        self.actions = actions
        self.parameters = [*advantage.parameters, *value.parameters]

    def look(self) -> None:
        """Take views of the parameters, wherever they lie now."""
        self.advantage.look()
        self.value.look()

    def up(self, values: Array) -> tuple[Array, tuple[list[object], list[object]]]:
        (advantage, on_advantage), (value, on_value) = (
            self.advantage.up(values),
            self.value.up(values),
        )
        apart = advantage.reshape(len(values), self.actions, -1)
        outputs = value[:, None] + (apart - apart.mean(1, keepdims=True))
        return outputs.reshape(advantage.shape), (on_advantage, on_value)

    def down(
        self, slopes: Array, kept: tuple[list[Any], list[Any]], inputs: bool, own: Own | None
    ) -> Array | None:
        apart = slopes.reshape(len(slopes), self.actions, -1)
        centred = (apart - apart.mean(1, keepdims=True)).reshape(slopes.shape)
        of_advantage, of_value = _parted(own, [self.advantage, self.value])
        by_advantage = self.advantage.down(centred, kept[0], inputs, of_advantage)
        by_value = self.value.down(apart.sum(1), kept[1], inputs, of_value)
        return _total([by_advantage, by_value]) if inputs else None


def _parted(own: Own | None, tapes: Sequence[Tape]) -> list[Own | None]:
    """Part what is added up among tapes whose parameters follow one another."""
    if own is None:
        return [None] * len(tapes)
    ends = list(accumulate(len(tape.parameters) for tape in tapes))
    return [Own(own.arrays[begin:end], own.fresh) for begin, end in pairwise([0, *ends])]


def _total(parts: Sequence[Array | None]) -> Array:
    total: Array = np.sum([part for part in parts if part is not None], 0)
    return total
