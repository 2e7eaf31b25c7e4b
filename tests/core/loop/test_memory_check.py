"""Sizes that cannot fit into memory raise before allocation, with the name of the option."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.buffers.free_memory import physical, size_text
from rlplug_core.errors import BadConfig, BadEnv
from rlplug_core.loop.memory_check import check_layers, check_sizes, checkpoints_to_keep, step_bytes

GIB = 1024**3
POLE = spaces.Box(-1, 1, (4,), np.float32)
PIXELS = spaces.Box(0, 255, (4, 84, 84), np.uint8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 100_000_000}, "'num_envs': 100,000,000 environments would take 186 GiB or more"),
        ({"buffer_size": 10**14}, "'buffer_size': a buffer of 100,000,000,000,000 steps would take"),
        ({"n_steps": 10**8, "num_envs": 8}, "'n_steps': a rollout of 800,000,000 steps"),
        ({"net.hidden": [10**8, 10**8]}, "'net.hidden': a network of 10,000,000,000,000,000 weights"),
    ],
)
def test_error_names_the_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig) as raised:
        check_sizes(options, POLE, 4 * GIB)
    assert message in str(raised.value)
    assert "this machine has 4 GiB of memory" in str(raised.value)


def test_ordinary_values_pass() -> None:
    options = {"num_envs": 64, "buffer_size": 1_000_000, "n_steps": 2048, "net.hidden": [400, 300], "net.norm": None}
    check_sizes(options, POLE, 2 * GIB)
    check_sizes({"num_envs": 8, "buffer_size": 1_000_000}, PIXELS, 8 * GIB)  # frames are stored once


def test_layers_larger_than_memory_raise() -> None:
    many = spaces.Discrete(10**9)
    few = spaces.Discrete(4)
    net = {"net.hidden": [64, 32]}
    parts = spaces.Dict({"few": few, "many": spaces.MultiDiscrete([10**9, 2]), "image": PIXELS})
    for obs, action, message in (
        (many, few, "layer for observations of 1,000,000,000 numbers would take 954 GiB or more"),
        (parts, few, "layer for observations of 1,000,000,006 numbers"),
        (POLE, many, "layer for actions of 1,000,000,000 numbers would take 477 GiB or more"),
    ):
        with pytest.raises(BadEnv, match=message):
            check_layers(net, obs, action, 4 * GIB)
        for unknown in ({}, {**net, "net.obs": ["few"]}, {**net, "net.factory": "impala-cnn"}):
            check_layers(unknown, obs, action, 4 * GIB)
    check_layers({"net.hidden": []}, many, few, 15 * GIB)


def test_step_bytes_count_observation_and_reward() -> None:
    assert step_bytes(POLE) == 16 + 4
    assert step_bytes(PIXELS) == 84 * 84 + 4
    assert step_bytes(spaces.Dict({"a": POLE, "b": PIXELS})) == 16 + 84 * 84 + 4
    assert step_bytes(spaces.Discrete(5)) == 8 + 4


def test_reads_physical_memory() -> None:
    assert physical() > 256 * 1024**2


@pytest.mark.parametrize(
    ("size", "text"), [(20, "20 B"), (1536, "1.5 KiB"), (4 * GIB, "4 GiB"), (2**70, "1,048,576 PiB")]
)
def test_size_text_has_a_unit(size: int, text: str) -> None:
    assert size_text(size) == text


def test_large_replay_buffer_keeps_one_checkpoint() -> None:
    """A million frames of Atari are 6.6 GiB in each checkpoint; four of them filled a disk."""
    frames = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    atari = {"buffer_size": 1_000_000, "learning_starts": 100, "total_timesteps": 10_000_000}
    count, message = checkpoints_to_keep(atari, frames)
    assert count == 1
    expected = "a checkpoint holds the replay buffer, up to 6.58 GiB; up to 2 checkpoints are kept, 13.2 GiB together"
    assert message.startswith(expected)
    assert checkpoints_to_keep({**atari, "keep_checkpoints": 3}, frames)[0] == 3
    count, message = checkpoints_to_keep({**atari, "keep_checkpoints": 0}, frames)
    assert (count, "all checkpoints are kept:" in message) == (0, True)
    assert checkpoints_to_keep({**atari, "total_timesteps": 10_000}, frames) == (3, "")
    on_policy = {"n_steps": 128, "total_timesteps": 10_000_000}
    assert checkpoints_to_keep(on_policy, frames) == (3, "")
