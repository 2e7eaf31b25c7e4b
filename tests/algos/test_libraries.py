"""Every algorithm learns the same, up to rounding, with each library for matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlplug_core.fast import dense_pass, layer_ops, matmul
from tests.algos.test_schedules import FOLLOWING, OFF, env_of, options_of

REPLAYED = ("c51", "iqn", "noisy-dqn", "qrdqn")


@pytest.mark.parametrize("algorithm", [*REPLAYED, *FOLLOWING])
def test_weights_do_not_depend_on_the_library(
    train_runner: Callable[..., Any], algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**options_of(algorithm), **(OFF if algorithm in REPLAYED else {}), "total_timesteps": 40}
    other = train_runner(algorithm, env_of(algorithm), **options).snapshot().state_dict()
    calls = list[int]()
    product = matmul._product

    def count(*factors: Any) -> torch.Tensor:
        calls.append(1)
        return product(*factors)

    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(matmul, "ONEDNN_MINIMUM", 0)
    monkeypatch.setattr(layer_ops, "ONEDNN_MINIMUM", 0)
    monkeypatch.setattr(dense_pass, "NUMPY_MAXIMUM", 0)  # numba would compute whole passes
    monkeypatch.setattr(matmul, "_product", count)
    weights = train_runner(algorithm, env_of(algorithm), **options).snapshot().state_dict()
    assert calls
    for name, tensor in other.items():
        if isinstance(tensor, torch.Tensor):
            torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-3, msg=name)
