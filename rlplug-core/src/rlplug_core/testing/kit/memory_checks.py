"""Checks of memories: their state, ends of episodes, rows, weights and export."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.export.program import export_program
from rlplug_core.nets.recurrent import Memory, Remembered
from rlplug_core.testing.kit.module_subject import MemorySubject
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.types import tree_map

#: Steps and rows of the tested sequences.
STEPS = 6
ROWS = 4


def state(subject: MemorySubject) -> None:
    """The state is float32 zeros [N, ...] by part, with "h" [N, units]; a step keeps names, shapes and types."""
    memory = subject.build()
    for rows in (1, 3):
        initial = memory.initial(rows)
        if "h" not in initial or initial["h"].shape != (rows, memory.units):
            raise Failed(f"its initial state has no part 'h' [{rows}, {memory.units}], the units")
        for name, part in initial.items():
            if part.dtype != "float32" or part.any() or len(part) != rows:
                raise Failed(
                    f"the part '{name}' of its initial state is not float32 zeros [N, ...]"
                )
        before = tree_map(torch.from_numpy, initial)
        after = memory.step(subject.features(rows), before)
        if _form(after) != _form(before):
            raise Failed(f"a step turns the state {_form(before)} into {_form(after)}")
        for name, tensor in after.items():
            if not torch.isfinite(tensor).all():
                raise Failed(f"after a step its part '{name}' is not finite")


def _form(state: Remembered) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (tuple(part.shape), str(part.dtype)) for name, part in state.items()}


def unroll(subject: MemorySubject) -> None:
    """A sequence gives the states of single steps; the ends of episodes reset it, invalid steps leave it unchanged."""
    memory = subject.build()
    features, first, valid, before = sequence(subject, memory)
    for mask, case in ((None, "ends of episodes"), (valid, "invalid steps")):
        with torch.no_grad():
            actual = memory.unroll(features, first, dict(before), mask)
            expected = Memory.unroll(memory, features, first, dict(before), mask)
        if name := different(actual, expected):
            raise Failed(
                f"with {case}, unroll gives another '{name}' than single steps; reset the rows in which is_first is "
                "true, and keep those in which valid is false"
            )


def sequence(
    subject: MemorySubject,
    memory: Memory,
) -> tuple[Tensor, Tensor, Tensor, Remembered]:
    """Return features [T * N, F], first steps, valid steps [T * N], and the state before them [N, ...]."""
    features = subject.features(STEPS * ROWS)
    generator = torch.Generator().manual_seed(11)
    first = torch.rand(STEPS * ROWS, generator=generator) < 0.3
    valid = torch.rand(STEPS * ROWS, generator=generator) < 0.7
    return features, first, valid, subject.states(memory, ROWS)


def different(actual: Remembered, expected: Remembered) -> str:
    """Return the first part that differs by more than rounding, or ""."""
    for name, part in expected.items():
        if name not in actual or actual[name].shape != part.shape:
            return name
        if not torch.allclose(actual[name], part, rtol=1e-4, atol=1e-5):
            return name
    return ""


def episodes(subject: MemorySubject) -> None:
    """An episode does not affect the next one, and a call does not affect the next call."""
    memory = subject.build()
    features = subject.features(ROWS)
    is_first = torch.ones(ROWS, dtype=torch.bool)
    with torch.no_grad():
        initial = tree_map(torch.from_numpy, memory.initial(ROWS))
        fresh = memory.unroll(features, is_first, initial)
        for seed in (20, 30):
            later = memory.unroll(features, is_first, subject.states(memory, ROWS, seed))
            if name := different(later, fresh):
                raise Failed(
                    f"the part '{name}' after the first step of an episode depends on the episode before it; keep all "
                    "of the memory in the state, not in the module"
                )


def recall(subject: MemorySubject) -> None:
    """The part that policies read depends on earlier steps."""
    memory = subject.build()
    features = subject.features(ROWS)
    with torch.no_grad():
        first = memory.step(features, subject.states(memory, ROWS, 20))
        second = memory.step(features, subject.states(memory, ROWS, 30))
    if torch.equal(first["h"], second["h"]):
        raise Failed(
            "its part 'h' does not depend on the state before the step: it remembers nothing"
        )


def rows(subject: MemorySubject) -> None:
    """A row does not depend on other rows, in training mode either."""
    memory = subject.build()
    features = subject.features(ROWS)
    before = subject.states(memory, ROWS)
    for mode in (True, False):
        memory.train(mode)
        with torch.no_grad():
            together = memory.step(features, before)
            single = memory.step(features[:1], {name: part[:1] for name, part in before.items()})
        if name := different(single, {name: part[:1] for name, part in together.items()}):
            raise Failed(
                f"the part '{name}' of a row depends on the other rows; do not normalize over the batch, and draw no "
                "random numbers"
            )


def weights(subject: MemorySubject) -> None:
    """Weights depend only on the seed, have finite gradients, and are all in `state_dict`."""
    memory = subject.build()
    check_seed(memory, subject.build(), subject.build(2))
    features, first, _, before = sequence(subject, memory)
    original = memory.unroll(features, first, before)
    check_gradient(memory, original["h"])
    loaded = subject.build(2)
    loaded.load_state_dict(memory.state_dict())
    with torch.no_grad():
        reloaded = loaded.unroll(features, first, before)
    if name := different(reloaded, {name: part.detach() for name, part in original.items()}):
        raise Failed(
            f"loaded into another memory, its weights give a different '{name}'; register all state"
        )


def check_seed(
    module: nn.Module,
    same_seed: nn.Module,
    other_seed: nn.Module,
) -> None:
    """Raise Failed if modules built with one seed differ, or modules with different seeds do not."""
    tensors = module.state_dict()
    if any(not torch.equal(part, same_seed.state_dict()[name]) for name, part in tensors.items()):
        raise Failed(
            "two modules with the same seed have different weights; draw them with torch's generator"
        )
    trained = [name for name, _ in module.named_parameters()]
    if trained and all(
        torch.equal(tensors[name], other_seed.state_dict()[name]) for name in trained
    ):
        raise Failed(
            "two modules with different seeds have the same weights; draw them with torch's generator and set no seed"
        )


def check_gradient(module: nn.Module, outputs: Tensor) -> None:
    """Raise Failed if no gradient of outputs reaches the trained parameters, or one is not finite."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        return
    outputs.square().sum().backward()
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    if not all(torch.isfinite(gradient).all() for gradient in gradients):
        raise Failed("the gradient of its outputs is not finite")
    if not any(gradient.any() for gradient in gradients):
        raise Failed(
            "no gradient of its outputs reaches its parameters; do not detach or use no_grad"
        )


def exported_outputs(
    module: nn.Module,
    inputs: list[Tensor],
    noun: str,
) -> list[Tensor]:
    """Return the outputs of the exported module; raise Failed if it cannot be exported."""
    try:
        program = export_program(module, inputs)
    except UsageError as error:
        raise Failed(f"{noun} cannot be exported: {error}") from error
    with torch.no_grad():
        outputs: list[Tensor] = program.module()(inputs)
    return outputs


class _Step(nn.Module):
    """One step with lists of tensors, as exports call it."""

    def __init__(self, memory: Memory, names: list[str]) -> None:
        super().__init__()
        self.memory = memory
        self.names = names

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        features, *before = inputs
        after = self.memory.step(features, dict(zip(self.names, before, strict=True)))
        return [after[name] for name in self.names]


def export(subject: MemorySubject) -> None:
    """A step can be exported, and the export gives the same state."""
    memory = subject.build()
    before = subject.states(memory, ROWS)
    inputs = [subject.features(ROWS), *before.values()]
    outputs = exported_outputs(_Step(memory, list(before)), inputs, "its step")
    with torch.no_grad():
        expected = memory.step(inputs[0], before)
    exported = dict(zip(before, outputs, strict=True))
    if name := different(exported, expected):
        raise Failed(f"exported, its part '{name}' differs; do not branch on the values of tensors")
