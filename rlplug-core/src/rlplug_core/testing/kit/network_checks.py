"""Checks of networks by name (`net.factory`): their outputs, rows, weights and export."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rlplug_core.testing.kit.memory_checks import check_gradient, check_seed, exported_outputs
from rlplug_core.testing.kit.module_subject import NetworkSubject
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.side_effects import check_generators
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.types import Obs, Space, tree_map


def modules(subject: NetworkSubject) -> Iterator[tuple[str, Space, nn.Module, int]]:
    """Yield each accepted kind of observations: its name, its space, a new module, and the number of its features."""
    for name, space in subject.spaces().items():
        module, features = subject.build(space)
        yield name, space, module, features


def outputs(subject: NetworkSubject) -> None:
    """For any B, observations [B, ...] give finite float32 features [B, F], and stay unchanged."""
    for name, space, module, features in modules(subject):
        for rows in (2, 5):
            obs = subject.observations(space, rows)
            before = tree_map(torch.clone, obs)
            with torch.no_grad():
                output = module(obs)
            if output.shape != (rows, features) or output.dtype != torch.float32:
                raise Failed(
                    f"for {name} it returns {list(output.shape)} {output.dtype}, not [{rows}, {features}] float32"
                )
            if not torch.isfinite(output).all():
                raise Failed(f"for {name} its features are not finite")
            if path := difference(leaves(before, "obs"), leaves(obs, "obs")):
                raise Failed(f"for {name} it changes its input '{path}' in place; copy it first")


def rows(subject: NetworkSubject) -> None:
    """A row does not depend on other rows in either mode, and training and evaluation mode give the same features."""
    for name, space, module, _ in modules(subject):
        obs = subject.observations(space, 8)
        few = tree_map(lambda part: part[:2], obs)
        by_mode = {}
        for mode in (True, False):
            module.train(mode)
            with torch.no_grad():
                together = module(obs)
                separate = module(few)
            by_mode[mode] = together
            if not torch.allclose(together[:2], separate, rtol=1e-4, atol=1e-4):
                raise Failed(
                    f"features of {name} depend on the other rows in {'training' if mode else 'evaluation'} mode; do "
                    "not normalize over the batch, and draw no random numbers"
                )
        if not torch.allclose(by_mode[True], by_mode[False], rtol=1e-4, atol=1e-4):
            raise Failed(
                f"features of {name} differ between training and evaluation mode; networks here have no mode, so leave "
                "dropout and batch normalization out"
            )


def calls(subject: NetworkSubject) -> None:
    """A call draws no random numbers and does not affect the next call."""
    for name, space, module, _ in modules(subject):
        obs = subject.observations(space, 3)
        with torch.no_grad(), check_generators("make each call without random numbers"):
            first = module(obs)
            module(subject.observations(space, 1, seed=9))
            second = module(obs)
        if not torch.equal(first, second):
            raise Failed(f"two calls with the same observations of {name} give different features")


def weights(subject: NetworkSubject) -> None:
    """Weights depend only on the seed, have finite gradients, and are all in `state_dict`."""
    for name, space, module, _ in modules(subject):
        loaded, _ = subject.build(space, 2)
        same, _ = subject.build(space)
        check_seed(module, same, loaded)
        obs = subject.observations(space, 4)
        output = module(obs)
        check_gradient(module, output)
        loaded.load_state_dict(module.state_dict())
        with torch.no_grad():
            reloaded = loaded(obs)
        if not torch.allclose(reloaded, output.detach(), rtol=1e-4, atol=1e-5):
            raise Failed(
                f"with its weights loaded into another one, features of {name} differ; register buffers and parameters"
            )


class _Flat(nn.Module):
    """A network with a list of tensors as input, as exports call it."""

    def __init__(self, module: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.module = module
        self.names = names

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        obs: Obs = dict(zip(self.names, inputs, strict=True)) if self.names else inputs[0]
        return [self.module(obs)]


def export(subject: NetworkSubject) -> None:
    """It can be exported, and the export gives the same features."""
    for name, space, module, _ in modules(subject):
        obs = subject.observations(space, 3)
        names = list(obs) if isinstance(obs, dict) else []
        inputs = list(obs.values()) if isinstance(obs, dict) else [obs]
        (exported,) = exported_outputs(_Flat(module, names), inputs, f"its module for {name}")
        with torch.no_grad():
            expected = module(obs)
        if not torch.allclose(exported, expected, rtol=1e-4, atol=1e-4):
            raise Failed(
                f"exported, features of {name} differ; do not branch on the values of tensors"
            )
