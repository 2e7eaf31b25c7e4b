"""Checks of memories and networks: right ones pass, and each wrong one fails its check."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlplug_core.config.options import Config
from rlplug_core.nets.recurrent import Memory
from rlplug_core.testing import memory_checks, network_checks
from tests.tables import for_each


class Mean(Memory):
    """Right: a running mean of features, and the last features in a separate part."""

    Config = Config

    def __init__(self, features: int, config: Config) -> None:
        super().__init__()
        self.units = 3
        self.layer = nn.Linear(features, 3)
        self.features = features

    def initial(self, num_envs: int) -> dict[str, Any]:
        return {"h": np.zeros((num_envs, 3), np.float32), "past": np.zeros((num_envs, 2, self.features), np.float32)}

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        past = torch.cat([before["past"][:, 1:], features.unsqueeze(1)], 1)
        return {"h": 0.5 * before["h"] + torch.tanh(self.layer(past.mean(1))), "past": past}


class Leaky(Mean):
    """Keeps the last step in the module, beyond the end of the episode."""

    last: Any = 0.0

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        after = super().step(features, before)
        after["h"] = after["h"] + self.last
        self.last = after["h"].detach().mean()
        return after


class Endless(Mean):
    """Its sequences continue over the ends of episodes."""

    def unroll(self, features: Tensor, is_first: Tensor, before: Any, valid: Any = None) -> dict[str, Tensor]:
        return super().unroll(features, torch.zeros_like(is_first), before, valid)


class Invalid(Mean):
    """Its sequences count steps that are not valid."""

    def unroll(self, features: Tensor, is_first: Tensor, before: Any, valid: Any = None) -> dict[str, Tensor]:
        return super().unroll(features, is_first, before)


class Forgetful(Mean):
    """Ignores its state."""

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        return super().step(features, {name: torch.zeros_like(part) for name, part in before.items()})


class Mixed(Mean):
    """Normalizes over the rows."""

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        return super().step(features - features.mean(0), before)


class Seedless(Mean):
    """Has the same weights for every seed."""

    def __init__(self, features: int, config: Config) -> None:
        super().__init__(features, config)
        nn.init.uniform_(self.layer.weight, generator=torch.Generator().manual_seed(3))
        nn.init.zeros_(self.layer.bias)


class Shapeless(Mean):
    """Grows by a row at each step."""

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**super().step(features, before), "past": torch.cat([before["past"], features.unsqueeze(1)], 1)}


class Nameless(Mean):
    """Has no part h."""

    def initial(self, num_envs: int) -> dict[str, Any]:
        return {"c": np.zeros((num_envs, 3), np.float32)}


class Detached(Mean):
    """Is not trained."""

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: part.detach() for name, part in super().step(features, before).items()}


def failures(kit_checks: Any) -> dict[str, str]:
    return {check.name: check.outcome().message for check in kit_checks if check.outcome().status == "failed"}


@for_each("name", ["gru", "lstm:units=5", f"{__file__}:Mean"])
def test_right_memories_pass(name: str) -> None:
    assert failures(memory_checks(name)) == {}


@for_each(
    "name, check, message",
    [
        ("Leaky", "memory-episodes", "keep all of the memory in the state"),
        ("Endless", "memory-unroll", "with ends of episodes"),
        ("Invalid", "memory-unroll", "with invalid steps"),
        ("Forgetful", "memory-recall", "it remembers nothing"),
        ("Mixed", "memory-rows", "do not normalize over the batch"),
        ("Seedless", "memory-weights", "different seeds have the same weights"),
        ("Shapeless", "memory-state", "a step turns the state"),
        ("Nameless", "memory-state", "no part 'h' [1, 3]"),
        ("Detached", "memory-weights", ""),
    ],
)
def test_wrong_memories_fail_their_check(name: str, check: str, message: str) -> None:
    messages = failures(memory_checks(f"{__file__}:{name}"))
    assert message in messages[check]


class Right(nn.Module):
    """Vectors only."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(space.shape)), 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, obs: Tensor) -> Tensor:
        return self.norm(torch.tanh(self.layer(obs.float())))


class Batchwise(Right):
    def forward(self, obs: Tensor) -> Tensor:
        features = super().forward(obs)
        return features - features.mean(0)


class Modal(Right):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.drop = nn.BatchNorm1d(4)

    def forward(self, obs: Tensor) -> Tensor:
        return self.drop(super().forward(obs)) if self.training else super().forward(obs)


class Own(Right):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, generator=generator)


class Unsaved(Right):
    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.shift = torch.rand(4)

    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs) + self.shift


class Scribbling(Right):
    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs.mul_(2))


class Counting(Right):
    calls = 0.0

    def forward(self, obs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(obs) + self.calls


def _factory(kind: type[Right]) -> Any:
    def make(space: Any, net: Any) -> tuple[nn.Module, int]:
        if len(space.shape or ()) != 1:
            raise ValueError("vectors only")
        return kind(space), 4

    return make


right, batchwise, modal, own, unsaved, scribbling, counting = map(
    _factory, (Right, Batchwise, Modal, Own, Unsaved, Scribbling, Counting)
)


def never(space: Any, net: Any) -> None:
    raise ValueError("no space fits")


@for_each("name", ["impala-cnn", f"{__file__}:right"])
def test_right_networks_pass(name: str) -> None:
    assert failures(network_checks(name)) == {}


@for_each(
    "name, check, message",
    [
        ("batchwise", "network-rows", "depend on the other rows in training mode"),
        ("modal", "network-rows", "do not normalize over the batch"),
        ("own", "network-weights", "different seeds have the same weights"),
        ("unsaved", "network-weights", "register buffers and parameters"),
        ("scribbling", "network-outputs", "changes its input 'obs' in place"),
        ("counting", "network-calls", "two calls with the same observations of a vector"),
        ("never", "network-outputs", "takes none of the kit's observations"),
    ],
)
def test_wrong_networks_fail_their_check(name: str, check: str, message: str) -> None:
    messages = failures(network_checks(f"{__file__}:{name}"))
    assert message in messages[check]


def test_unknown_name_fails_the_first_check() -> None:
    (first, *rest) = (check.outcome() for check in memory_checks("gruu"))
    assert first.status == "failed"
    assert "no memory 'gruu' is installed; did you mean 'gru'" in first.message
    assert {outcome.status for outcome in rest} == {"skipped"}


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_checks_do_not_change_torchs_generator(kind: str) -> None:
    before = copy.deepcopy(torch.random.get_rng_state())
    kit_checks = memory_checks("gru") if kind == "memory" else network_checks(f"{__file__}:right")
    assert failures(kit_checks) == {}
    assert torch.equal(before, torch.random.get_rng_state())
