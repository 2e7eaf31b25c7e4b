"""Networks from options: activations, norms, initial weights, convolutions and factories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.config.parse import convert
from rlplug_core.config.schema import flatten
from rlplug_core.errors import BadConfig, PluginError, UsageError
from rlplug_core.nets.continuous import ActionCritic, DeterministicPolicy
from rlplug_core.nets.encoders import MLP, encoder
from rlplug_core.nets.heads import ParallelHeads, squashed
from rlplug_core.nets.initial_weights import linear
from rlplug_core.nets.memory_networks import RecurrentCritic, RecurrentPolicy
from rlplug_core.nets.net import Net
from rlplug_core.nets.normalize import RunningNorm
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.nets.renorm import RenormCritic
from rlplug_core.types import Spec
from tests.core import own_nets
from tests.core.fakes import TinyConfig
from tests.tables import for_each

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
BOX = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (3, 20, 20), np.uint8)
DISCRETE = Spec(VECTOR, spaces.Discrete(3), 1, "here")
CONTINUOUS = Spec(VECTOR, BOX, 1, "here")
FUNCTIONS: dict[str, nn.Module] = {
    "tanh": nn.Tanh(), "relu": nn.ReLU(), "elu": nn.ELU(), "gelu": nn.GELU(), "silu": nn.SiLU(),
    "leaky_relu": nn.LeakyReLU(),
}  # fmt: skip


@for_each("norm", [False, True])
@for_each("name", FUNCTIONS)
def test_mlp_alternates_linear_norm_and_activation(name: Any, norm: bool) -> None:
    """The encoder and the stream of a Q-network equal torch's modules in sequence."""
    net = Net(hidden=(7, 6), activation=name, layer_norm=norm)
    network = QNetwork(DISCRETE, net)
    obs = torch.randn(4, 5)
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    values = obs
    for part in (network.encoder, network.advantage):
        norms = iter(part.norms)
        for layer in part.linears:
            values = nn.functional.linear(values, layer.weight, layer.bias)
            if values.shape[1] == 3:
                break
            values = FUNCTIONS[name](next(norms)(values) if norm else values)
    torch.testing.assert_close(network(obs), values)


@for_each("name", FUNCTIONS)
@for_each(
    "space",
    [
        IMAGE,
        spaces.Box(0, 255, (20, 20, 3), np.uint8),
        spaces.Box(0, 1, (4, 10, 10), np.uint8),
        spaces.Box(0, 255, (4, 36, 36), np.uint8),
    ],
)
@for_each("norm", [False, True])
def test_image_encoder_alternates_convolution_norm_and_activation(norm: bool, name: Any, space: spaces.Box) -> None:
    """Equal to torch's functions in sequence, for channels first and last, and for planes of zeros and ones.

    LayerNorm is over the channels of each pixel, as flax's is in purejaxql, with a scale and a shift per channel.
    """
    sizes: Any = {"channels": (4, 6), "kernels": (5, 3), "strides": (2, 1)}
    net = Net(hidden=(7,), activation=name, conv_layer_norm=norm, **sizes)
    module, _ = encoder(space, net)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1)
    most = int(space.high.max())
    obs = torch.randint(most + 1, (4, *space.shape), dtype=torch.uint8)
    values = (obs.permute(0, 3, 1, 2) if space.shape[-1] == 3 else obs) / most
    for number, layer in enumerate(module.convolutions):
        values = nn.functional.conv2d(values, layer.weight, layer.bias, layer.stride)
        if norm:
            scale, shift = module.norms[number].weight, module.norms[number].bias
            spread = (values.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
            values = (values - values.mean(1, keepdim=True)) / spread
            values = values * scale[:, None, None] + shift[:, None, None]
        values = FUNCTIONS[name](values)
    (last,) = module.dense.linears
    expected = FUNCTIONS[name](last(values.flatten(1)))
    torch.testing.assert_close(module(obs), expected, rtol=1e-4, atol=1e-5)
    floats = obs.float()
    torch.testing.assert_close(module(floats), expected, rtol=1e-4, atol=1e-5)
    assert floats.equal(obs.float())  # the input is unchanged


def uniform_bound(init: str, inputs: int, outputs: int, gain: float) -> float:
    """Return the bound of uniform weights (Glorot and Bengio, 2010, eq. 16; He et al., 2015, eq. 10 as a uniform)."""
    return gain * (6 / (inputs + outputs)) ** 0.5 if init == "xavier_uniform" else gain * (3 / inputs) ** 0.5


def convolution(net: Net) -> nn.Conv2d:
    """Make the first convolution over images of three channels: five outputs per window of 4 x 4."""
    module, _ = encoder(IMAGE, replace(net, channels=(5,), kernels=(4,), strides=(4,)))
    layer = module.convolutions[0]
    assert isinstance(layer, nn.Conv2d)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("gain", [None, 0.5])
@pytest.mark.parametrize("init", ["xavier_uniform", "kaiming_uniform"])
def test_uniform_weights_reach_their_bounds(init: Any, gain: float | None) -> None:
    layer = linear(300, 200, net=Net(init=init, gain=gain)).requires_grad_(False)
    bound = uniform_bound(init, 300, 200, 2**0.5 if gain is None else gain)
    assert bound * 0.99 < float(layer.weight.abs().max()) < bound * 1.00001
    assert float(layer.weight.var()) == pytest.approx(bound**2 / 3, rel=0.05)
    assert not layer.bias.any()


@pytest.mark.parametrize("gain", [None, 0.5])
def test_orthogonal_weights_are_orthogonal(gain: float | None) -> None:
    layer = linear(9, 4, net=Net(gain=gain))
    expected = (2 if gain is None else gain**2) * torch.eye(4)
    torch.testing.assert_close(layer.weight @ layer.weight.T, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gain", [None, 0.5])
@pytest.mark.parametrize("init", ["orthogonal", "xavier_uniform", "kaiming_uniform"])
def test_initial_convolutions_equal_linear_layers_over_windows(init: Any, gain: float | None) -> None:
    """A window has 3 x 4 x 4 inputs; Glorot and Bengio count the outputs of all windows that see a pixel."""
    layer = convolution(Net(init=init, gain=gain))
    assert not layer.bias.any()
    if init == "orthogonal":
        assert torch.linalg.svdvals(layer.weight.flatten(1)).tolist() == pytest.approx([gain or 2**0.5] * 5, rel=1e-5)
    else:
        bound = uniform_bound(init, 3 * 16, 5 * 16, gain or 2**0.5)
        assert bound * 0.95 < float(layer.weight.abs().max()) < bound * 1.00001


def test_init_torch_gives_the_weights_of_torch_layers() -> None:
    for ours, theirs in (
        (lambda: linear(9, 4, net=Net(init="torch")), lambda: nn.Linear(9, 4)),
        (lambda: convolution(Net(init="torch")), lambda: nn.Conv2d(3, 5, 4, 4)),
    ):
        torch.manual_seed(3)
        layer = ours()
        torch.manual_seed(3)
        expected = theirs()
        assert torch.equal(layer.weight, expected.weight)
        assert torch.equal(layer.bias, expected.bias)


def test_default_weights_are_orthogonal_layers_in_order() -> None:
    """Bit for bit those of versions without the options of initial weights."""

    def layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
        linear_layer = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear_layer.weight, gain)
        return linear_layer

    torch.manual_seed(5)
    network = PolicyNetwork(DISCRETE, Net())
    torch.manual_seed(5)
    for inputs, outputs, gain, ours in (
        (5, 64, 2**0.5, network.encoder.linears[0]),
        (64, 64, 2**0.5, network.encoder.linears[1]),
        (64, 3, 0.01, network.outputs),
    ):
        assert torch.equal(ours.weight, layer(inputs, outputs, gain).weight)


def singular_values(module: nn.Module) -> list[float]:
    assert isinstance(module, nn.Linear)
    return [float(value) for value in torch.linalg.svdvals(module.weight.detach())]


@pytest.mark.parametrize(("given", "expected"), [(None, 0.01), (0.3, 0.3)])
def test_output_gain_scales_the_last_layer_of_policies(given: float | None, expected: float) -> None:
    net = Net(output_gain=given)
    gaussian = PolicyNetwork(CONTINUOUS, net).outputs
    several = PolicyNetwork(Spec(VECTOR, spaces.Dict({"a": spaces.Discrete(3), "b": BOX}), 1, "here"), net).outputs
    assert isinstance(gaussian, nn.Sequential)
    assert isinstance(several, ParallelHeads)
    for layer in (
        PolicyNetwork(DISCRETE, net).outputs,
        gaussian[0],
        PolicyNetwork(CONTINUOUS, net, make=squashed).outputs,
        DeterministicPolicy(CONTINUOUS, net).outputs,
        PolicyNetwork(CONTINUOUS, replace(net, std="state")).outputs,
        RecurrentPolicy(DISCRETE, net, "gru", 9).policy.outputs,
        several.layers[0],
        several.layers[1][0],
    ):
        assert singular_values(layer) == pytest.approx([expected] * layer.weight.shape[0], rel=1e-4)
    for values in (Critic(DISCRETE, net).output, ActionCritic(CONTINUOUS, net).output):
        assert singular_values(values) == pytest.approx([1.0], rel=1e-4)


@pytest.mark.parametrize("popart", [False, True])
@pytest.mark.parametrize(("init", "has_bias"), [("torch", True), ("orthogonal", False)])
def test_init_applies_to_the_last_layer_of_critics(init: Any, has_bias: bool, popart: bool) -> None:
    """Only torch's initial weights have biases."""
    net = Net(init=init)
    for critic in (Critic(DISCRETE, net, popart=popart), RecurrentCritic(8, net, popart)):
        (layer,) = (part for part in critic.output.modules() if isinstance(part, nn.Linear))
        assert bool(layer.bias.any()) == has_bias


def test_convolutions_have_the_given_sizes() -> None:
    module, _ = encoder(IMAGE, Net(hidden=(9,), channels=(4, 6), kernels=(5, 3), strides=(2, 1)))
    found = [
        (layer.out_channels, *layer.kernel_size, *layer.stride)
        for layer in module.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    assert found == [(4, 5, 5, 2, 2), (6, 3, 3, 1, 1)]
    assert module(torch.zeros(2, 3, 20, 20, dtype=torch.uint8)).shape == (2, 9)


def test_convolutions_refuse_small_images() -> None:
    with pytest.raises(
        UsageError, match="convolution 2 is 9 x 9, but its input has only 8 pixels a side, from images of 20"
    ):
        encoder(IMAGE, Net(channels=(4, 6), kernels=(5, 9), strides=(2, 1)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"net.channels": [4]}, "channels, kernels and strides must have the same length"),
        ({"net.init": "torch", "net.gain": 2.0}, "leave gain and output_gain at none"),
        ({"net.init": "torch", "net.output_gain": 2.0}, "leave gain and output_gain at none"),
        ({"net.activation": "swish"}, "net.activation"),
        ({"net.hidden": [0]}, "net.hidden"),
    ],
)
def test_inconsistent_options_raise(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        convert(TinyConfig, values, "tiny")


def test_net_options_round_trip() -> None:
    config = TinyConfig(net=Net((3,), "gelu", True, "torch", channels=(4,), kernels=(3,), strides=(1,), factory="a:b"))
    assert convert(TinyConfig, flatten(config), "tiny") == config


def test_batch_renormalization_refuses_layer_norm() -> None:
    with pytest.raises(UsageError, match=r"leave it at false"):
        RenormCritic(CONTINUOUS, Net(layer_norm=True), 10)


SPACES = {
    "vector": VECTOR,
    "image": IMAGE,
    "discrete": spaces.Discrete(4, start=1),
    "dict": spaces.Dict({"see": IMAGE, "feel": VECTOR, "action_mask": spaces.MultiBinary(3)}),
}


@pytest.mark.parametrize("name", SPACES)
def test_factory_replaces_the_encoder(name: str) -> None:
    module, features = encoder(SPACES[name], Net(factory=f"{own_nets.HERE}:make"))
    assert (type(module).__name__, features) == ("Own", 6)
    assert [type(part).__name__ for part in module.modules() if isinstance(part, MLP)] == []


def test_action_critic_concatenates_features_and_action() -> None:
    torch.manual_seed(0)
    critic = ActionCritic(CONTINUOUS, Net((8,), factory="tests.core.own_nets:make"))
    obs, action = torch.randn(3, 5), torch.randn(3, 2)
    features = critic.vectors.parts[0](obs)
    expected = critic.output(critic.layers(torch.cat([features, action], 1))).squeeze(-1)
    torch.testing.assert_close(critic(obs, action), expected)
    assert critic.layers.linears[0].in_features == 6 + 2


def test_factory_gets_normalized_observations() -> None:
    """In encoders and in critics of actions."""
    net = Net((8,), factory=f"{own_nets.HERE}:make", normalize_obs=True)
    obs = torch.randn(3, 5)
    action = torch.randn(3, 2)
    policy = PolicyNetwork(CONTINUOUS, net)
    critic = ActionCritic(CONTINUOUS, net)
    norms = [part for network in (policy, critic) for part in network.modules() if isinstance(part, RunningNorm)]
    assert len(norms) == 2
    for norm in norms:
        norm.update(7 + 3 * torch.randn(50, 5), torch.ones(50))
    seen = ((obs - norms[0].mean) / norms[0].variance.sqrt()).float()
    torch.testing.assert_close(policy.encoder(obs), policy.encoder.encoder(seen))
    seen = ((obs - norms[1].mean) / norms[1].variance.sqrt()).float()
    vectors = torch.cat([critic.vectors.vectors.parts[0](seen), action], 1)
    torch.testing.assert_close(critic(obs, action), critic.output(critic.layers(vectors)).squeeze(-1))


def test_factory_gets_the_hidden_layers_of_the_encoder() -> None:
    nets: list[Net] = []

    def record(space: Any, net: Net) -> tuple[nn.Module, int]:
        nets.append(net)
        return own_nets.make(space, net)

    own_nets.record = record  # type: ignore[attr-defined]
    net = Net((9, 8), factory="tests.core.own_nets:record")
    PolicyNetwork(DISCRETE, net)
    QNetwork(DISCRETE, net)
    ActionCritic(CONTINUOUS, net)
    assert [net.hidden for net in nets] == [(9, 8), (9,), ()]
    assert {net.factory for net in nets} == {None}


def test_default_weights_of_action_critics_are_orthogonal() -> None:
    torch.manual_seed(1)
    critic = ActionCritic(CONTINUOUS, Net((8,)))
    torch.manual_seed(1)
    assert torch.equal(critic.layers.linears[0].weight, linear(7, 8).weight)


@for_each(
    "target, error, message",
    [
        ("./gone.py:make", UsageError, r"there is no file gone\.py"),
        (f"{own_nets.HERE}:mkae", PluginError, "has no 'mkae'; did you mean 'make'"),
        (f"{own_nets.HERE}", UsageError, "names no network; write ./file.py:Name or module:Name"),
        ("no_such_module_here:make", UsageError, "there is no module 'no_such_module_here'"),
        (f"{own_nets.HERE}:number", PluginError, "is not a network: it is a int; name a function"),
        (f"{own_nets.HERE}:raises", PluginError, "cannot be made: KeyError: 'thing'; --traceback shows where"),
        (f"{own_nets.HERE}:no_number", PluginError, r"it returned Own; return \(module, features\)"),
        (f"{own_nets.HERE}:no_module", PluginError, r"it returned \(int, int\); return \(module, features\)"),
        (
            f"{own_nets.HERE}:no_tensor",
            PluginError,
            r"gives \(Tensor, tuple\) instead of a tensor of features",
        ),
        (f"{own_nets.HERE}:wrong_number", PluginError, r"turns 2 observations into \[2, 6\] .* instead of \[2, 7\]"),
        (f"{own_nets.HERE}:images_only", PluginError, r"cannot take observations in Box.*: RuntimeError"),
    ],
)
def test_errors_of_factories_are_one_sentence(target: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        PolicyNetwork(DISCRETE, Net(factory=target))
    assert "\n" not in str(caught.value)


def test_factory_is_tried_on_scaled_observations() -> None:
    """With `net.normalize_obs`, bytes arrive as floats, which a linear layer accepts."""
    own = f"{own_nets.HERE}:linear"
    space = spaces.Box(0, 255, (128,), np.uint8)
    module, features = encoder(space, Net(factory=own, normalize_obs=True))
    assert module(torch.zeros(3, 128, dtype=torch.uint8)).shape == (3, features)
    with pytest.raises(PluginError, match="cannot take observations"):
        encoder(space, Net(factory=own))


@for_each(
    "network, new, arguments",
    [
        (PolicyNetwork(DISCRETE, Net(hidden=(8,))), "from_features", (torch.ones(2, 8), torch.ones(2, 3))),
        (Critic(DISCRETE, Net(hidden=(8,))), "from_features", (torch.ones(2, 8),)),
        (RecurrentQ(DISCRETE, Net(), "gru:units=5"), "from_memory", ({"h": torch.ones(2, 5)}, torch.ones(2, 3))),
    ],
)
def test_former_method_warns_and_returns_the_same(network: Any, new: str, arguments: tuple[Any, ...]) -> None:
    with pytest.warns(DeprecationWarning, match=f"{type(network).__name__}.on is now {new}; the next version"):
        former = network.on(*arguments)
    assert torch.equal(former, getattr(network, new)(*arguments))
