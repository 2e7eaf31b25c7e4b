"""Observation and action side by side by rules, as the critics of `continuous` see them."""

from __future__ import annotations

from typing import Any

from torch import nn

from rlplug_core.nets.encoders import MLP, Concat, Vector
from rlplug_core.nets.layer_rules import Scaled
from rlplug_core.nets.node import Node, beside
from rlplug_core.nets.normalize import ObservationNorm, RunningNorm
from rlplug_core.types import Array


class NormalizedBeside(nn.Module):
    """Concatenates observation and action, after it normalizes the observation."""

    def __init__(self, norm: ObservationNorm, vectors: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.vectors = vectors

    def forward(self, both: dict[str, Any]) -> Any:
        return self.vectors({**both, "obs": self.norm(both["obs"])})


def why_not(vectors: nn.Module) -> str:
    """Return what keeps a module that puts both side by side from going by rules; nothing is an empty text."""
    if isinstance(vectors, NormalizedBeside):
        norm = type(vectors.norm.norm)
        return (
            f"{norm.__name__} has no rule" if norm is not RunningNorm else why_not(vectors.vectors)
        )
    if isinstance(vectors, MLP) and vectors.vectors is not None and not vectors.linears:
        vectors = vectors.vectors
    if type(vectors) is not Concat or any(type(part) is not Vector for part in vectors.parts):
        return "observations or actions are no plain vectors"
    return ""


def side_by_side(vectors: Any, obs: Array, action: Any) -> Array | Node:
    """Do what `vectors` does, to an array [B, F] and an array or a node [B, d]; a gradient reaches the action alone."""
    if isinstance(vectors, NormalizedBeside):
        assert isinstance(vectors.norm.norm, RunningNorm)
        obs = Scaled(vectors.norm.norm).up(obs)[0]
        vectors = vectors.vectors
    if isinstance(vectors, MLP):
        vectors = vectors.vectors
    both = {
        "obs": obs,
        "action": action if isinstance(action, Node) else action.reshape(len(action), -1),
    }
    return beside([both[name] for name in vectors.names])
