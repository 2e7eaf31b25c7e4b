"""The residual network of IMPALA as the plugin `impala-cnn`."""

from __future__ import annotations

from pathlib import Path

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch.nn import functional

import rlplug_core as rl
from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.impala_cnn import ImpalaCNN
from rlplug_core.nets.net import Net

IMAGE = spaces.Box(0, 255, (20, 12, 3), np.uint8)


def figure_3(network: ImpalaCNN, obs: torch.Tensor) -> torch.Tensor:
    """Compute Figure 3 (right) of the paper with torch's functions."""
    image = obs.permute(0, 3, 1, 2).float() / 255
    stages = list(network.stages)
    for start in range(0, 12, 4):
        convolution, _, *residuals = stages[start : start + 4]
        image = functional.max_pool2d(convolution(image), 3, 2, padding=1)
        for residual in residuals:
            image = image + residual.second(functional.relu(residual.first(functional.relu(image))))
    return functional.relu(network.output(functional.relu(image).flatten(1)))


def test_impala_cnn_equals_the_paper() -> None:
    module, features = encoder(IMAGE, Net(factory="impala-cnn"))
    obs = torch.randint(0, 256, (4, 20, 12, 3), dtype=torch.uint8)
    assert isinstance(module, ImpalaCNN)
    assert module(obs).shape == (4, features)
    torch.testing.assert_close(module(obs), figure_3(module, obs))
    assert [stage.out_channels for stage in module.stages if isinstance(stage, torch.nn.Conv2d)] == [16, 32, 32]


def test_impala_cnn_refuses_vectors() -> None:
    with pytest.raises(UsageError, match=r"impala-cnn takes images \[height, width, channels\]"):
        encoder(spaces.Box(-1, 1, (4,), np.float32), Net(factory="impala-cnn"))
    with pytest.raises(UsageError, match="no network 'impala-cn' is installed; did you mean 'impala-cnn'"):
        encoder(IMAGE, Net(factory="impala-cn"))


def test_run_with_impala_cnn_loads(tmp_path: Path) -> None:
    options = {"total_timesteps": 64, "n_steps": 8, "net.factory": "impala-cnn", "final_eval_episodes": 1}
    run = rl.train("a2c", "rlplug_core.testing.envs:Pixels", options, out=tmp_path, hooks=False)
    assert rl.load(run.path) is not None
