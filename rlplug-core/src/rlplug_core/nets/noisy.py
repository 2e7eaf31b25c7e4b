"""Linear layers with noise on their weights (Fortunato et al., 2018, arXiv:1706.10295); the noise is an argument.

    layer = NoisyLinear(64, 4, "factorized")
    noise = torch.from_numpy(layer.draw(generator))
    layer(features, noise)          # one draw for the whole batch; [B, size] has one for each row
    layer(features)                 # the mean weights, a plain linear layer

The caller owns the random numbers: an agent draws again at every step, a learner at every update.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.errors import UsageError
from rlplug_core.nets import dense
from rlplug_core.types import Array

#: Kinds of noise: a number for each weight, or a number for each input and output; a weight has the product of two.
Noise: TypeAlias = Literal["independent", "factorized"]
#: Up to this number of rows an agent's factorized noise is computed as a second product, without a matrix of noisy
#: weights. In a layer of 3136 to 512 this takes a sixth of the time for one row and half for eight; in one of 1024 to
#: 128, half for one row and as long for eight. For small layers there is no difference.
FEW = 8


def check_sigma(noisy: Noise | None, sigma: float | None) -> None:
    """Raise UsageError if a deviation is given without noise."""
    if noisy is None and sigma is not None:
        raise UsageError(
            "noisy_sigma needs noisy layers; give --noisy factorized or independent too, or leave noisy_sigma at none"
        )


class NoisyLinear(nn.Module):
    """y = (W + Σ_W ⊙ ε_W) x + b + Σ_b ⊙ ε_b with learned W, b and Σ; `weight` and `bias` are the means W and b.

    Args:
        inputs, outputs: features in and out.
        kind: `independent` noise, or `factorized`: ε_W[j, i] = f(ε_j) f(ε_i), ε_b[j] = f(ε_j), f(x) = sgn(x) √|x|.
        sigma: the initial noise. None is the paper's (section 3.2): 0.017 for independent noise, and 0.5 / √inputs for
            factorized noise; there `sigma` replaces 0.5.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kind: Noise = "factorized",
        sigma: float | None = None,
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.outputs = outputs
        self.kind = kind
        if kind == "factorized":
            self.size = inputs + outputs
            bound = inputs**-0.5
            initial = (0.5 if sigma is None else sigma) * inputs**-0.5
        else:
            self.size = inputs * outputs + outputs
            bound = (3 / inputs) ** 0.5
            initial = 0.017 if sigma is None else sigma
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), initial))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), initial))

    def draw(self, generator: np.random.Generator) -> Array:
        """Draw noise [size] for one use of the layer, with f already applied."""
        normal = generator.standard_normal(self.size, dtype=np.float32)
        if self.kind == "independent":
            return normal
        return np.copysign(np.sqrt(np.abs(normal)), normal)

    def weights_under(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight [outputs, inputs] and bias [outputs] with `noise` [size]."""
        if self.kind == "factorized":
            bias_noise = noise[self.inputs :]
            weight_noise = torch.outer(bias_noise, noise[: self.inputs])
        else:
            bias_noise = noise[-self.outputs :]
            weight_noise = noise[: -self.outputs].view(self.outputs, self.inputs)
        weight = self.weight + self.weight_sigma * weight_noise
        return weight, self.bias + self.bias_sigma * bias_noise

    @overridable
    def forward(self, features: Tensor, noise: Tensor | None = None) -> Tensor:
        """Compute outputs.

        Args:
            features: [..., inputs].
            noise: [size], or [B, size] for features [B, inputs]; None for the means.

        Returns:
            Outputs [..., outputs].
        """
        if noise is not None and (noise.ndim == 2 or self._has_few_rows(features)):
            return self._add_products(features, noise)
        weight, bias = (self.weight, self.bias) if noise is None else self.weights_under(noise)
        return dense.linear(features, weight, bias)

    def _has_few_rows(self, features: Tensor) -> bool:
        """Return whether an agent acts with factorized noise in few rows: then two products are faster."""
        return (
            self.kind == "factorized"
            and features.numel() <= FEW * self.inputs
            and not torch.is_grad_enabled()
        )

    def _add_products(self, features: Tensor, noise: Tensor) -> Tensor:
        """Compute outputs of the means plus those of the noise [B, size] or [size], as two products."""
        mean = dense.linear(features, self.weight, self.bias)
        if self.kind == "factorized":
            input_noise, output_noise = noise.split((self.inputs, self.outputs), -1)
            product = dense.linear(features * input_noise, self.weight_sigma, self.bias_sigma)
            return mean + output_noise * product
        weight_noise = noise[:, : -self.outputs].unflatten(1, (self.outputs, self.inputs))
        product = ((self.weight_sigma * weight_noise) @ features.unsqueeze(2)).squeeze(2)
        return mean + product + self.bias_sigma * noise[:, -self.outputs :]
