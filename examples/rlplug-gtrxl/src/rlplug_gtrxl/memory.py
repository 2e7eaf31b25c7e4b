"""Gated Transformer-XL, GTrXL (Parisotto et al., 2020, arXiv:1910.06764): a memory that attends to the last steps.

Each layer keeps its inputs of the last `window` steps, so a step can read further back than the window, layer by layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class GTrXLConfig(rl.Config):
    """Options of the gated transformer."""

    units: rl.Count = 64  # width of all layers
    layers: rl.Count = 2  # number of transformer layers
    heads: rl.Count = 4  # attention heads of each layer; they divide units
    window: rl.Count = 32  # past steps that a layer attends to
    gate_bias: rl.NonNegative = (
        2.0  # at the start, larger values let a layer pass more of its input
    )

    def __post_init__(self) -> None:
        if self.units % self.heads:
            raise ValueError(
                f"heads must divide units, and {self.heads} do not divide {self.units}"
            )


class Gate(nn.Module):
    """The gate of a recurrent unit instead of a residual sum (section 3.2)."""

    def __init__(self, units: int, bias: float) -> None:
        super().__init__()
        self.of_output = nn.Linear(units, 3 * units, bias=False)
        self.of_input = nn.Linear(units, 2 * units, bias=False)
        self.of_reset = nn.Linear(units, units, bias=False)
        self.bias = nn.Parameter(torch.full((units,), bias))

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        reset, update, new = self.of_output(outputs).chunk(3, -1)
        own_reset, own_update = self.of_input(inputs).chunk(2, -1)
        share = (update + own_update - self.bias).sigmoid()
        fresh = (new + self.of_reset((reset + own_reset).sigmoid() * inputs)).tanh()
        gated: Tensor = (1 - share) * inputs + share * fresh
        return gated


class Attention(nn.Module):
    """Attention of several heads with learned embeddings of the distance to each past step."""

    def __init__(self, config: GTrXLConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.width = config.units // config.heads
        self.query = nn.Linear(config.units, config.units)
        self.key_value = nn.Linear(config.units, 2 * config.units)
        self.out = nn.Linear(config.units, config.units)
        distances = torch.randn(config.window + 1, self.heads, self.width)
        self.distances = nn.Parameter(0.02 * distances)

    def forward(self, now: Tensor, seen: Tensor, distance: Tensor, allowed: Tensor) -> Tensor:
        """Attend from each step to steps before it.

        Args:
            now: [N, T, U] of the steps.
            seen: [N, K, U] of all steps that can be seen.
            distance: [T, K] int64 number of steps between both.
            allowed: [N, T, K] bool, the positions that each step may attend to.

        Returns:
            [N, T, U].
        """
        query = self.query(now).unflatten(-1, (self.heads, self.width))
        key, value = self.key_value(seen).unflatten(-1, (2, self.heads, self.width)).unbind(2)
        far = torch.einsum("nthd,mhd->nhtm", query, self.distances)
        far = far.gather(3, distance.expand(far.shape[0], self.heads, -1, -1))
        scores = torch.einsum("nthd,nkhd->nhtk", query, key) + far
        scores = (scores / self.width**0.5).masked_fill(~allowed.unsqueeze(1), float("-inf"))
        seen_values = torch.einsum("nhtk,nkhd->nthd", scores.softmax(-1), value)
        attended: Tensor = self.out(seen_values.flatten(2))
        return attended


class Layer(nn.Module):
    """Attention and a feed-forward network, both after LayerNorm and with a gate (section 3.1)."""

    def __init__(self, config: GTrXLConfig) -> None:
        super().__init__()
        units = config.units
        self.norms = nn.ModuleList([nn.LayerNorm(units), nn.LayerNorm(units)])
        self.attention = Attention(config)
        self.feed_forward = nn.Sequential(
            nn.Linear(units, units), nn.ReLU(), nn.Linear(units, units)
        )
        self.gates = nn.ModuleList([Gate(units, config.gate_bias), Gate(units, config.gate_bias)])

    def forward(self, now: Tensor, seen: Tensor, distance: Tensor, allowed: Tensor) -> Tensor:
        attended = self.attention(self.norms[0](now), self.norms[0](seen), distance, allowed)
        middle = self.gates[0](now, attended.relu())
        outputs: Tensor = self.gates[1](middle, self.feed_forward(self.norms[1](middle)).relu())
        return outputs


class GTrXL(rl.Memory):
    """A transformer over the last steps of the episode.

    Its state has "h" [N, U], "past" [N, L, U, W], the inputs of each layer at the last W steps, and "held" [N, 1], the
    number of these steps that belong to the episode.
    """

    Config = GTrXLConfig

    def __init__(self, features: int, config: GTrXLConfig) -> None:
        super().__init__()
        self.units = config.units
        self.window = config.window
        self.embed = nn.Linear(features, config.units)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def initial(self, num_envs: int) -> dict[str, rl.Array]:
        past = (num_envs, len(self.layers), self.units, self.window)
        return {
            "h": np.zeros((num_envs, self.units), np.float32),
            "past": np.zeros(past, np.float32),
            "held": np.zeros((num_envs, 1), np.float32),
        }

    def step(self, features: Tensor, before: dict[str, Tensor]) -> dict[str, Tensor]:
        first = torch.zeros(1, features.shape[0], dtype=torch.bool, device=features.device)
        return self._attend(features.unsqueeze(0), first, before)

    def unroll(
        self,
        features: Tensor,
        is_first: Tensor,
        before: dict[str, Tensor],
        valid: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Compute all steps at once; one by one if some steps are absent, because these do not move the window."""
        rows = before["h"].shape[0]
        if len(features) == rows or (valid is not None and not bool(valid.all())):
            return super().unroll(features, is_first, before, valid)
        return self._attend(features.unflatten(0, (-1, rows)), is_first.view(-1, rows), before)

    def _attend(
        self, features: Tensor, first: Tensor, before: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the state after each of T steps [T * N, ...] from features [T, N, F]."""
        steps = features.shape[0]
        place = torch.arange(steps, device=features.device)
        opened = torch.where(first, place.unsqueeze(1), -1).cummax(0).values if steps > 1 else None
        held = before["held"].squeeze(1) + place.unsqueeze(1)  # past steps of the episode, [T, N]
        if opened is not None:
            held = torch.where(opened >= 0, (place.unsqueeze(1) - opened).to(held.dtype), held)
        seen_at = torch.arange(-self.window, steps, device=features.device)
        distance = place.unsqueeze(1) - seen_at
        reach = held.clamp(max=self.window).T.unsqueeze(2)
        allowed = (distance >= 0) & (distance <= reach)
        now = self.embed(features).transpose(0, 1)
        distance = distance.clamp(0, self.window)
        streams = []
        for number, layer in enumerate(self.layers):
            seen = torch.cat([before["past"][:, number].transpose(1, 2), now], 1)
            streams.append(seen.transpose(0, 1))
            now = layer(now, seen, distance, allowed)
        past = torch.stack(streams, 2)[1:]
        if steps == 1:  # always so in exported programs
            windows = past.permute(1, 2, 3, 0)
        else:
            windows = past.unfold(0, self.window, 1).flatten(0, 1)
        return {
            "h": now.transpose(0, 1).flatten(0, 1),
            "past": windows,
            "held": (held + 1).clamp(max=self.window).reshape(-1, 1),
        }
