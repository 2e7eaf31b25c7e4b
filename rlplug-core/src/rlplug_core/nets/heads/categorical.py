"""Choices: one of several actions, or one of several in each place."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.nets.heads.masks import ILLEGAL
from rlplug_core.types import Array

#: The logit of a choice that a place does not have: below that of an illegal action, and finite, too.
ABSENT = 2 * ILLEGAL


class Categorical:
    """One of `size` actions; outputs are logits."""

    def __init__(self, size: int) -> None:
        self.size = size
        #: A dot product with it computes a sum; NumPy takes longer to make it than to use it.
        self.ones = np.ones(size, np.float32)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Array:
        drawn = generator.gumbel(size=(*shape, self.size))
        return drawn if isinstance(drawn, Tensor) else drawn.astype(np.float32)

    def sample(self, outputs: Array, noise: Array) -> Array:
        """Sample by the Gumbel-max trick: argmax(logits + Gumbel noise) has the distribution softmax(logits)."""
        return (outputs + noise).argmax(-1)

    def mode(self, outputs: Array) -> Array:
        return outputs.argmax(-1)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        shifted = outputs - np.maximum.reduce(outputs.T)[:, None]
        chosen = shifted[np.arange(len(action)), action]
        return chosen - np.log(np.exp(shifted).dot(self.ones))

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return outputs.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        log_probs = outputs.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    @overridable
    def log_prob_and_entropy(
        self,
        outputs: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Compute both [B] from one normalization."""
        log_probs = outputs.log_softmax(-1)
        chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        log_probs = outputs.log_softmax(-1)
        return (log_probs.exp() * (log_probs - other.log_softmax(-1))).sum(-1)


class MultiCategorical:
    """One of `sizes[i]` choices in each place i, independently; outputs are the logits of all, [B, sum(sizes)].

    Actions are integers [B, *shape] in the shape of `sizes`. Places with fewer choices than others get absent ones,
    so that all places are computed together.
    """

    def __init__(self, sizes: Array) -> None:
        self.shape = sizes.shape
        sizes = sizes.reshape(-1, 1).astype(np.int64)
        self.size = int(sizes.sum())
        numbers = np.arange(sizes.max())
        #: The column of each choice of each place [places, widest]; absent ones have the column after the last.
        self.columns = np.where(
            numbers < sizes, sizes.cumsum().reshape(-1, 1) - sizes + numbers, self.size
        )
        self.equal_sizes = self.columns.size == self.size
        #: The same as a tensor, on the device of the last outputs.
        self._columns = torch.from_numpy(self.columns)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
    ) -> Array:
        drawn = generator.gumbel(size=(*shape, self.size))
        return drawn if isinstance(drawn, Tensor) else drawn.astype(np.float32)

    def sample(self, outputs: Array, noise: Array) -> Array:
        """Sample each place by the Gumbel-max trick."""
        return self.mode(outputs + noise)

    def mode(self, outputs: Array) -> Array:
        action: Array = self._host_places(outputs).argmax(-1)
        return action.reshape(-1, *self.shape)

    def host_log_prob(self, outputs: Array, action: Array) -> Array:
        logits = self._host_places(outputs)
        shifted = logits - logits.max(-1, keepdims=True)
        chosen = np.take_along_axis(shifted, action.reshape(len(action), -1, 1), -1)[..., 0]
        return (chosen - np.log(np.exp(shifted).sum(-1))).sum(-1)

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        return _choose(self.places(outputs).log_softmax(-1), action)

    def entropy(self, outputs: Tensor) -> Tensor:
        log_probs = self.places(outputs).log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum((-2, -1))

    def log_prob_and_entropy(
        self,
        outputs: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Compute both from one normalization."""
        log_probs = self.places(outputs).log_softmax(-1)
        return _choose(log_probs, action), -(log_probs.exp() * log_probs).sum((-2, -1))

    def kl(self, outputs: Tensor, other: Tensor) -> Tensor:
        log_probs = self.places(outputs).log_softmax(-1)
        others = self.places(other).log_softmax(-1)
        return (log_probs.exp() * (log_probs - others)).sum((-2, -1))

    def places(self, outputs: Tensor) -> Tensor:
        """Return outputs [B, sum(sizes)] as [B, places, widest]."""
        if self.equal_sizes:
            return outputs.unflatten(-1, self.columns.shape)
        if self._columns.device != outputs.device:
            self._columns = self._columns.to(outputs.device)
        return nn.functional.pad(outputs, (0, 1), value=ABSENT)[:, self._columns]

    def _host_places(self, outputs: Array) -> Array:
        if isinstance(outputs, Tensor):
            return self.places(outputs)
        if self.equal_sizes:
            return outputs.reshape(-1, *self.columns.shape)
        absent = np.full((len(outputs), 1), ABSENT, np.float32)
        return np.concatenate([outputs, absent], -1).take(self.columns, -1)


def _choose(log_probs: Tensor, action: Tensor) -> Tensor:
    """Return the sum [B] over places of the log-probabilities [B, places, widest] of actions [B, ...]."""
    return log_probs.gather(-1, action.flatten(1).unsqueeze(-1)).sum((-2, -1))
