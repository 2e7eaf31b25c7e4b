"""Memories: modules that turn features and a state into the next state; the state resets at the start of an episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import kernel
from rlplug_core.config.options import Config, Count
from rlplug_core.errors import PluginError, UsageError
from rlplug_core.named_parts import build_part
from rlplug_core.types import Array

#: A cell: features [N, F] and each part of the old state [N, H] to each part of the new state.
Step: TypeAlias = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]
#: Names of the recurrent cells.
CellName = Literal["gru", "lstm"]
#: The parts of a memory's state; other layers read "h" [N, units]. After `unroll`, each part is [T * N, ...].
Remembered: TypeAlias = dict[str, Tensor]


def forget(state: Remembered, is_first: Tensor) -> Remembered:
    """Return the state with zeros in the rows that start an episode.

    Args:
        state: parts [N, ...].
        is_first: [N] bool.
    """
    return {name: part.masked_fill(_as_rows(is_first, part), 0.0) for name, part in state.items()}


def _as_rows(mask: Tensor, part: Tensor) -> Tensor:
    """Return a mask [N] with the dimensions of a part [N, ...]."""
    return mask.reshape(-1, *[1] * (part.ndim - 1))


def step_by_step(
    step: Step,
    features: Tensor,
    is_first: Tensor,
    before: Sequence[Tensor],
    valid: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return each part of the memory after each step, [T * N, ...], by `step`; arguments as of `Memory.unroll`."""
    rows = before[0].shape[0]
    steps = []
    starts = is_first.split(rows)
    valid_rows = [None] * len(starts) if valid is None else valid.split(rows)
    for step_features, first, is_valid in zip(
        features.split(rows), starts, valid_rows, strict=True
    ):
        states = [part.masked_fill(_as_rows(first, part), 0.0) for part in before]
        before = step(step_features, states)
        if is_valid is not None:
            before = [
                new.where(_as_rows(is_valid, new), old)
                for new, old in zip(before, states, strict=True)
            ]
        steps.append(before)
    return tuple(torch.cat(tensors) for tensors in zip(*steps, strict=True))


@kernel
def unroll(
    cell: nn.RNNCellBase,
    step: Step,
    features: Tensor,
    is_first: Tensor,
    before: Sequence[Tensor],
    valid: Tensor | None,
) -> Sequence[Tensor]:
    """Return each part of a cell's state after each step, [T * N, H]; arguments as in `Memory.unroll`."""
    return step_by_step(step, features, is_first, before, valid)


class Memory(nn.Module):
    """The base of memories, built with the number of features that it reads and its options, a `Config`.

    A subclass sets `units`, the width of the part "h" that policies and critics read, and defines `initial` and `step`.
    It may override `unroll` with a faster method that returns the same.
    """

    Config: ClassVar[type[Config]] = Config
    #: The width of the part "h".
    units: int

    def initial(self, num_envs: int) -> dict[str, Array]:
        """Return the empty state: zeros, [N, ...] for each part by name, "h" [N, units] first."""
        raise NotImplementedError

    def step(self, features: Tensor, before: Remembered) -> Remembered:
        """Return the state after one step.

        Args:
            features: [N, F] of the current observations.
            before: the state [N, ...]; rows that start an episode have zeros.
        """
        raise NotImplementedError

    def unroll(
        self,
        features: Tensor,
        is_first: Tensor,
        before: Remembered,
        valid: Tensor | None = None,
    ) -> Remembered:
        """Return the state after each step, [T * N, ...].

        Args:
            features: [T * N, F], step by step, N rows each.
            is_first: [T * N] bool, the first step of an episode; the memory is reset there.
            before: [N, ...] each, the memory before the first step.
            valid: [T * N] bool, real steps; others do not change the memory. None means all are valid.
        """
        names = list(before)

        def step(
            features: Tensor,
            states: Sequence[Tensor],
        ) -> Sequence[Tensor]:
            after = self.step(features, dict(zip(names, states, strict=True)))
            return [after[name] for name in names]

        steps = step_by_step(step, features, is_first, list(before.values()), valid)
        return dict(zip(names, steps, strict=True))


@dataclass(frozen=True)
class CellConfig(Config):
    """Options of a recurrent cell."""

    units: Count = 64  # units of the recurrent layer


class Cell(Memory):
    """The base of recurrent cells; the fast room unrolls those that it knows."""

    Config = CellConfig
    #: The parts of the state.
    parts: tuple[str, ...] = ("h",)
    cell: nn.RNNCellBase

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def initial(self, num_envs: int) -> dict[str, Array]:
        return {part: np.zeros((num_envs, self.units), dtype=np.float32) for part in self.parts}

    def unroll(
        self,
        features: Tensor,
        is_first: Tensor,
        before: Remembered,
        valid: Tensor | None = None,
    ) -> Remembered:
        states = [before[part] for part in self.parts]
        steps = unroll(
            self.cell, self._step, features, is_first=is_first, before=states, valid=valid
        )
        return dict(zip(self.parts, steps, strict=True))

    def _step(
        self,
        features: Tensor,
        states: Sequence[Tensor],
    ) -> Sequence[Tensor]:
        return list(self.step(features, dict(zip(self.parts, states, strict=True))).values())


class GRU(Cell):
    """A gated recurrent unit (Cho et al., 2014, arXiv:1406.1078)."""

    def __init__(
        self,
        features: int,
        config: CellConfig = CellConfig(),
    ) -> None:
        super().__init__(config.units)
        self.cell = initialize_cell(nn.GRUCell(features, config.units))

    def step(self, features: Tensor, before: Remembered) -> Remembered:
        return {"h": self.cell(features, before["h"])}


class LSTM(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with forget gates."""

    parts = ("h", "c")

    def __init__(
        self,
        features: int,
        config: CellConfig = CellConfig(),
    ) -> None:
        super().__init__(config.units)
        self.cell = initialize_cell(nn.LSTMCell(features, config.units))

    def step(self, features: Tensor, before: Remembered) -> Remembered:
        output, cell = self.cell(features, (before["h"], before["c"]))
        return {"h": output, "c": cell}


#: The recurrent cells by name.
CELLS: dict[str, type[GRU | LSTM]] = {"gru": GRU, "lstm": LSTM}


def initialize_cell(cell: nn.RNNCellBase) -> nn.RNNCellBase:
    """Return the cell with orthogonal weights and zero biases, except 1 at the gate that keeps the memory.

    Jozefowicz et al. (2015) measure the effect of this 1. In both of torch's cells the gate has the second block of the
    biases: it is the LSTM's forget gate and the GRU's update gate.
    """
    for name, parameter in cell.named_parameters():
        if name.startswith("weight"):
            nn.init.orthogonal_(parameter)
        else:
            nn.init.zeros_(parameter)
    with torch.no_grad():
        cell.bias_ih[cell.hidden_size : 2 * cell.hidden_size] = 1
    return cell


def make_memory(words: str, features: int) -> Memory:
    """Make a memory that reads `features` numbers.

    Args:
        words: the name and the options of the memory, as a user types them: `gru`, `gru:units=128`, `./mine.py:Mine`.
        features: the number of features.

    Raises:
        UsageError: no memory has this name. BadConfig: an option is wrong. PluginError: it cannot be made, or is not a
            module with `units`.
    """
    memory = build_part("memory", words, features)
    if not isinstance(memory, nn.Module) or not isinstance(getattr(memory, "units", None), int):
        raise PluginError(
            f"the memory '{words}' is not a torch module with 'units', the width of its part 'h'; inherit from "
            "rlplug_core.Memory and set self.units"
        )
    return cast("Memory", memory)


def with_units(words: str, units: int | None) -> str:
    """Return a memory's name and options with `units`, if they are given."""
    return words if units is None else f"{words}:units={units}"


def memory_option(
    memory: str | None,
    recurrent_cell: str | None,
    recurrent_hidden_size: int | None,
) -> str:
    """Return the option `memory`, such as `gru:units=128`, with the former options added; "" without a memory.

    Args:
        memory: the option `memory`.
        recurrent_cell, recurrent_hidden_size: the former options; they still set a cell and its units.

    Raises:
        UsageError: a former option is combined with a memory that is not a cell.
    """
    former = {"recurrent_cell": recurrent_cell, "recurrent_hidden_size": recurrent_hidden_size}
    given = [name for name, value in former.items() if value is not None]
    if given and memory not in (None, *CELLS):
        raise UsageError(
            f"{given[0]} is a former option of the memories gru and lstm; leave it out with --memory {memory}"
        )
    words = recurrent_cell or memory or ""
    if not words and given:
        raise UsageError(
            "recurrent_hidden_size is the former name of a memory's units; write --memory gru:units="
            f"{recurrent_hidden_size}"
        )
    return with_units(words, recurrent_hidden_size)
