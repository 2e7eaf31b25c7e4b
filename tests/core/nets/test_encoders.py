"""Encoders against slow references: one-hot choices, nested spaces, images, and scales of integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.errors import UsageError
from rlplug_core.nets.continuous import action_encoder
from rlplug_core.nets.encoders import Image, encoder, usual_convolutions
from rlplug_core.nets.net import Net
from rlplug_core.nets.number_scale import number_scale
from rlplug_core.nets.one_hot import OneHot
from rlplug_core.types import Spec, channels_last
from tests.tables import for_each

NONE = Net(hidden=())


def one_hot(values: Any, sizes: list[int], starts: list[int]) -> list[float]:
    """Encode number by number."""
    encoded: list[float] = []
    for value, size, start in zip(values, sizes, starts, strict=True):
        encoded += [float(value == start + choice) for choice in range(size)]
    return encoded


@pytest.mark.parametrize(
    ("space", "sizes", "starts"),
    [
        (spaces.Discrete(4), [4], [0]),
        (spaces.Discrete(3, start=-2), [3], [-2]),
        (spaces.MultiDiscrete([3, 1, 4]), [3, 1, 4], [0, 0, 0]),
        (spaces.MultiDiscrete([2, 3], start=[5, -1]), [2, 3], [5, -1]),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])), [2, 3, 4, 2], [0] * 4),
    ],
)
def test_encoder_makes_choices_one_hot(space: Any, sizes: list[int], starts: list[int]) -> None:
    module, features = encoder(space, NONE)
    space.seed(0)
    drawn = np.stack([np.asarray(space.sample()) for _ in range(20)])
    wanted = [one_hot(values, sizes, starts) for values in drawn.reshape(20, -1)]
    found = module(torch.from_numpy(drawn))
    assert features == sum(sizes)
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_one_hot_value_out_of_range_raises() -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        OneHot(spaces.Discrete(3))(torch.tensor([3]))


def test_encoder_concatenates_parts_of_dict_spaces() -> None:
    """Names of parts may be attributes of modules, or invalid as attributes."""
    space = spaces.Dict(
        {
            "keys": spaces.MultiBinary(2),
            "arm.angle": spaces.Box(-1, 1, (), np.float32),
            "forward": spaces.MultiDiscrete([2, 2]),
            "inner": spaces.Dict({"parts": spaces.Box(0, 9, (1, 2), np.int64)}),
        }
    )
    module, features = encoder(space, NONE)
    obs = {
        "keys": torch.tensor([[0, 1]], dtype=torch.int8),
        "arm.angle": torch.tensor([0.5]),
        "forward": torch.tensor([[1, 0]]),
        "inner": {"parts": torch.tensor([[[7, 8]]])},
    }
    assert features == 9
    assert module(obs).tolist() == [[0.5, 0, 1, 1, 0, 7, 8, 0, 1]]


def test_scalar_observation_is_one_feature() -> None:
    module, features = encoder(spaces.Box(-1, 1, (), np.float32), NONE)
    assert features == 1
    assert module(torch.tensor([0.5, -0.5])).tolist() == [[0.5], [-0.5]]


def test_space_without_encoder_raises() -> None:
    with pytest.raises(UsageError, match=r"no encoder for observations in Text\(.*; flatten it with a wrapper"):
        encoder(spaces.Text(3), NONE)


@for_each("shape, last", [
        ((84, 84, 3), True), ((3, 84, 84), False), ((210, 160, 3), True), ((3, 210, 160), False), ((10, 10, 4), True),
        ((10, 10, 10), True), ((10, 10, 16), True), ((16, 10, 10), False), ((10, 10, 40), True), ((9, 12, 9), False),
    ])  # fmt: skip
def test_channels_last_finds_two_neighboring_axes_of_equal_length(shape: tuple[int, ...], last: bool) -> None:
    assert channels_last(shape) == last


@pytest.mark.parametrize("channels", [4, 10, 16])
def test_features_move_with_objects_on_a_grid(channels: int) -> None:
    """MinAtar's grids: Seaquest has as many channels as tiles a side, and stacked frames have more."""
    space = spaces.Box(0, 1, (10, 10, channels), np.uint8)
    module, _ = encoder(space, Net(channels=(8,), kernels=(3,), strides=(1,)))
    assert isinstance(module, Image)

    def features_at(y: int, x: int) -> torch.Tensor:
        maps: list[torch.Tensor] = []
        hook = module.convolutions[0].register_forward_hook(lambda _, __, output: maps.append(output.clone()))
        grid = torch.zeros(1, 10, 10, channels, dtype=torch.uint8)
        grid[0, y, x, 2] = 1
        module(grid)
        hook.remove()
        return maps[0]

    torch.testing.assert_close(features_at(5, 6), torch.roll(features_at(4, 4), (1, 2), (2, 3)))


def test_weights_for_channels_first_raise() -> None:
    """Weights of versions that read cubes with channels first would fit, but for other axes."""
    module, _ = encoder(spaces.Box(0, 1, (10, 10, 10), np.uint8), NONE)
    before = {name: value for name, value in module.state_dict().items() if "convolutions" in name or "dense" in name}
    with pytest.raises(RuntimeError, match="has_channels_last"):
        module.load_state_dict(before)


@pytest.mark.parametrize("side", [*range(8, 64), 84, 96, 128, 160, 210, 256, 400])
def test_usual_convolutions_limit_features(side: int) -> None:
    """The dense layer has at most twice the inputs that 84 pixels give; 32 pixels once gave 25,088."""
    for shape in ((side, side), (side, 2 * side)):
        layers = usual_convolutions(*shape)
        height, width = shape
        for _, kernel, stride in layers:
            height, width = ((size - kernel) // stride + 1 for size in (height, width))
        assert height >= 1
        assert layers[-1][0] * height * width <= 64 * 100
    if side in (32, 84):
        image = Image(spaces.Box(0, 255, (side, side, 1), np.uint8), Net(hidden=(64, 64)))
        count = sum(parameter.numel() for parameter in image.parameters())
        assert count < {32: 120_000, 84: 300_000}[side]
        assert image(torch.zeros(2, side, side, 1, dtype=torch.uint8)).shape == (2, 64)


#: Spaces and the factors of their numbers.
SCALES = [
    (spaces.Box(0, 255, (128,), np.uint8), 1 / 255),
    (spaces.Box(0, 255, (9, 9), np.uint8), 1 / 255),
    (spaces.Box(-128, 127, (3,), np.int8), 1 / 128),
    (spaces.Box(0, 400, (3,), np.int16), 1 / 400),
    (spaces.Box(0, 9, (3,), np.uint8), 1.0),  # counts
    (spaces.Box(0, 255, (7, 7, 3), np.uint8), 1.0),  # codes of a grid, as MiniGrid has them
    (spaces.Box(0, 255, (84, 84, 4), np.uint8), 1 / 255),
    (spaces.Box(-400, 400, (3,), np.float32), 1.0),
    (spaces.Box(0, 10**6, (3,), np.int64), 1.0),
]


@for_each("space, scale", SCALES)
def test_number_scale_divides_small_integers_by_their_bound(space: spaces.Box, scale: float) -> None:
    assert number_scale(space) == pytest.approx(scale)


def test_networks_scale_bytes_to_between_0_and_1() -> None:
    """In actors, critics of actions and Dict spaces, unless `net.normalize_obs` scales them."""
    space = spaces.Box(0, 255, (5,), np.uint8)
    obs = torch.tensor([[0, 51, 102, 204, 255]], dtype=torch.uint8)
    wanted = torch.tensor([[0, 0.2, 0.4, 0.8, 1.0]])
    empty = Net(hidden=())
    torch.testing.assert_close(encoder(space, empty)[0](obs), wanted)
    both, _ = encoder(spaces.Dict(a=space, b=spaces.Box(-1, 1, (1,))), empty)
    torch.testing.assert_close(both({"a": obs, "b": torch.ones(1, 1)}), torch.cat([wanted, torch.ones(1, 1)], 1))
    critic, _ = action_encoder(Spec(space, spaces.Box(-1, 1, (1,)), 1, "Test"), empty)
    torch.testing.assert_close(critic({"obs": obs, "action": torch.ones(1, 1)})[:, 1:], wanted)
    plain = encoder(space, replace(empty, normalize_obs=True))[0](obs)
    torch.testing.assert_close(plain, obs.float().clamp(max=10))  # its moments are still 0 and 1
    normed, _ = action_encoder(Spec(space, spaces.Box(-1, 1, (1,)), 1, "Test"), replace(empty, normalize_obs=True))
    torch.testing.assert_close(normed({"obs": obs, "action": torch.ones(1, 1)})[:, 1:], plain)
