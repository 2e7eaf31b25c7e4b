"""Policies of Stable-Baselines3: the files that `model.save` writes, read without executing their pickles.

A file is a ZIP. Of `data`, which is JSON, only plain values and names of classes are read, and `policy.pth` is read by
torch with `weights_only`. MlpPolicy, CnnPolicy and MultiInputPolicy of PPO, A2C, DQN, SAC, TD3 and DDPG can be read,
and the file of `VecNormalize` (`sb3_inputs`).
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError, plain
from rlplug_core.export.flat import valid_rows
from rlplug_core.export.program import ignore_torch_warnings
from rlplug_core.export.sb3_inputs import Inputs, Statistics, inputs_of, linear
from rlplug_core.nets.actions import scale_and_shift
from rlplug_core.types import Space, tree_map

#: The most bytes of the two files that are read.
LIMITS = {"data": 2**26, "policy.pth": 2**30}
#: The prefix of the weights of the features extractor, by algorithm.
EXTRACTORS = {
    "ppo": "features_extractor.",
    "a2c": "features_extractor.",
    "dqn": "q_net.features_extractor.",
    "sac": "actor.features_extractor.",
    "td3": "actor.features_extractor.",
}
#: Exceptions for archives, JSON and weights that are damaged or that a stranger made.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    UnpicklingError,
    ValueError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
)
#: Activations by the name of their class; the default depends on the algorithm.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "ELU": nn.ELU,
    "GELU": nn.GELU,
    "Identity": nn.Identity,
    "LeakyReLU": nn.LeakyReLU,
    "Mish": nn.Mish,
    "ReLU": nn.ReLU,
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
    "Softplus": nn.Softplus,
    "Tanh": nn.Tanh,
}


@dataclass(frozen=True)
class Sb3Model:
    """A saved model: the weights of its policy by name, and its parameters as JSON."""

    weights: Mapping[str, Tensor]
    data: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """Return the algorithm, as far as the file names it: `ppo`, `a2c`, `dqn`, `sac` or `td3`."""
        module = str(_options(self.data, "policy_class").get("__module__", ""))
        match = re.fullmatch(r"stable_baselines3\.(dqn|sac|td3|common)\.policies", module)
        if match is None:
            raise UsageError(
                f"its policy class is from {plain(module) or 'an unknown module'}; only the policies of "
                "Stable-Baselines3 itself can be imported"
            )
        if match[1] != "common":
            return match[1]
        return "ppo" if "n_epochs" in self.data else "a2c"

    @property
    def steps(self) -> int:
        """Return the env steps that it was trained for."""
        steps = self.data.get("num_timesteps")
        return steps if isinstance(steps, int) and 0 <= steps < 2**63 else 0


def read_sb3(path: Path) -> Sb3Model:
    """Read a saved model; nothing of it is executed.

    Raises:
        UsageError: it is not a model of Stable-Baselines3, or a part is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: _member(archive, name) for name in LIMITS}
        data = json.loads(files["data"])
        with ignore_torch_warnings():
            weights = torch.load(io.BytesIO(files["policy.pth"]), "cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no file {path}; 'model.save' of Stable-Baselines3 writes one"
        ) from error
    except UNREADABLE as error:
        message = plain(str(error).partition("\n")[0])
        raise UsageError(
            f"{path} cannot be read as a model of Stable-Baselines3 ({type(error).__name__}: {message})"
        ) from error
    are_tensors = isinstance(weights, Mapping) and all(map(torch.is_tensor, weights.values()))
    if not isinstance(data, dict) or not are_tensors:
        raise UsageError(f"{path} is not a model of Stable-Baselines3: its parts have other types")
    return Sb3Model(weights, data)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a file of the archive; raise ValueError if it is too large."""
    with archive.open(name) as file:
        data = file.read(LIMITS[name] + 1)
    if len(data) > LIMITS[name]:
        raise ValueError(f"{name} has more than {LIMITS[name]:,} bytes")
    return data


class LayeredPolicy(nn.Module):
    """Maps observations [B, ...] to canonical actions: prepares inputs, applies layers, chooses by their outputs."""

    def __init__(
        self,
        inputs: Inputs,
        layers: nn.Module,
        choose: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.layers = layers
        self.choose = choose

    def exported(self) -> nn.Module:
        """Return itself, as `SupportsExport` asks."""
        return self

    def forward(self, obs: Any) -> Tensor:
        return self.choose(self.layers(self.inputs(obs)))


def policy_of(
    model: Sb3Model,
    obs: Space,
    action: Space,
    statistics: Statistics | None = None,
) -> LayeredPolicy:
    """Return the policy of a model for these spaces of its environment.

    Args:
        statistics: the running means and variances of `VecNormalize`, if the model was trained with it.

    Raises:
        UsageError: its kind of policy cannot be imported, or it does not fit the spaces.
    """
    algorithm = model.algorithm
    options = _options(model.data, "policy_kwargs")
    if options.get("squash_output"):
        raise UsageError("policies with squash_output cannot be imported")
    on_policy = algorithm in ("ppo", "a2c")
    layers = _layers(model, algorithm, _activation(options, "Tanh" if on_policy else "ReLU"))
    inputs = inputs_of(model.weights, EXTRACTORS[algorithm], obs, options, statistics)
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    _compare("observations", dense[0].in_features, _features(inputs, obs), obs)
    _compare("actions", dense[-1].out_features, _outputs(action), action)
    return LayeredPolicy(inputs, layers, _choice(action, on_policy))


def _features(inputs: Inputs, space: Space) -> int:
    """Return the number of features of an observation.

    Raises:
        UsageError: the convolutions do not fit the images of the environment.
    """
    example = tree_map(torch.from_numpy, valid_rows(space))
    try:
        return int(inputs(example).shape[1])
    except RuntimeError as error:
        raise UsageError(
            f"its convolutions do not fit {plain(str(space), 100)}; name the environment that it was trained on, with "
            "the same size of images"
        ) from error


def _layers(
    model: Sb3Model,
    algorithm: str,
    activation: Callable[[], nn.Module],
) -> nn.Sequential:
    """Return the layers after the inputs, with the weights of the model."""
    hidden, last = {
        "ppo": ("mlp_extractor.policy_net.", "action_net"),
        "a2c": ("mlp_extractor.policy_net.", "action_net"),
        "dqn": ("q_net.q_net.", ""),
        "sac": ("actor.latent_pi.", "actor.mu"),
        "td3": ("actor.mu.", ""),
    }[algorithm]
    pattern = re.compile(rf"{re.escape(hidden)}(\d+)\.weight")
    matches = [pattern.fullmatch(name) for name in model.weights]
    numbers = sorted(int(match[1]) for match in matches if match)
    if numbers != list(range(0, 2 * len(numbers), 2)):
        raise UsageError(
            "its layers after the inputs are not those of Stable-Baselines3; only these can be imported"
        )
    places = [f"{hidden}{number}" for number in numbers] + ([last] if last else [])
    modules: list[nn.Module] = []
    for place in places:
        modules += [linear(model.weights, place), activation()]
    if algorithm in ("sac", "td3"):
        return nn.Sequential(*modules[:-1], nn.Tanh())
    return nn.Sequential(*modules[:-1])


def _activation(
    options: Mapping[str, Any],
    default: str,
) -> Callable[[], nn.Module]:
    """Return the class of the activation function that the options name."""
    option = options.get("activation_fn")  # such as "<class 'torch.nn.modules.activation.ReLU'>"
    name = default if option is None else str(option).rstrip("'>").rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise UsageError(
            f"its activation {plain(name, 60)} cannot be imported; known ones are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def _options(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a parameter of the model that is a dictionary; {} if it is missing or has another type."""
    options = data.get(name)
    return options if isinstance(options, dict) else {}


def _outputs(action: Space) -> int:
    """Return the outputs of a policy for a space of actions; 0 for spaces that these models do not have."""
    if isinstance(action, spaces.Discrete):
        return int(action.n)
    if isinstance(action, spaces.MultiDiscrete):
        return int(action.nvec.sum())
    return int(np.prod(action.shape)) if isinstance(action, spaces.Box | spaces.MultiBinary) else 0


def _compare(noun: str, of_model: int, of_env: int, space: Space) -> None:
    """Raise UsageError if the model's observations or actions have another size than those of the environment."""
    if of_model != of_env:
        raise UsageError(
            f"the model has {of_model} numbers for {noun}, and the environment's are {plain(str(space), 100)}; name "
            "the environment that it was trained on"
        )


def _choice(action: Space, on_policy: bool) -> Callable[[Tensor], Tensor]:
    """Return the function from outputs [B, k] to canonical actions."""
    if isinstance(action, spaces.Discrete):
        return lambda outputs: outputs.argmax(-1)
    if isinstance(action, spaces.MultiDiscrete):
        sizes = action.nvec.reshape(-1).tolist()
        shape = action.shape
        return lambda outputs: torch.stack(
            [part.argmax(-1) for part in outputs.split(sizes, -1)], -1
        ).reshape(-1, *shape)
    if isinstance(action, spaces.MultiBinary):
        bits = action.shape
        return lambda outputs: (outputs > 0).to(torch.int8).reshape(-1, *bits)
    shape = action.shape or ()
    if not on_policy or not isinstance(action, spaces.Box):
        return lambda outputs: outputs.reshape(-1, *shape)
    # On-policy models act in the units of the environment.
    scale, shift = (torch.from_numpy(array) for array in scale_and_shift(action)[1:])
    return lambda outputs: ((outputs.reshape(-1, *shape).double() - shift) / scale).float()
