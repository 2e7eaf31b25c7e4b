"""Networks of a world model: from observations to latent states, and from these to all that a learner predicts."""

from __future__ import annotations

from dataclasses import replace

from gymnasium import spaces
from torch import Tensor, nn

import rlplug_core as rl

#: Numbers of a latent that sum to 1.
GROUP = 8


class SimNorm(nn.Module):
    """Softmax over groups of numbers: latents [B, L] have only positive numbers, and each group sums to 1."""

    def forward(self, values: Tensor) -> Tensor:
        groups: Tensor = values.unflatten(-1, (-1, GROUP))
        return groups.softmax(-1).flatten(-2)


class World(nn.Module):
    """Encoder, model, critics and policy.

    Args:
        spec: of the environment.
        net: layers of the encoder.
        inner: hidden layers of all networks that read latents.
        groups: groups of 8 numbers in a latent.
        atoms: outputs for a reward or a value; 1 for the number itself.
    """

    def __init__(self, spec: rl.Spec, net: rl.Net, inner: rl.Net, groups: int, atoms: int) -> None:
        super().__init__()
        self.norm = SimNorm()
        latent = groups * GROUP
        inside = replace(spec, obs=spaces.Box(0, 1, (latent,)))
        features, width = rl.encoder(spec.obs, net)
        self.encoder = nn.Sequential(features, nn.Linear(width, latent), self.norm)
        self.dynamics = rl.ActionCritic(inside, inner, atoms=latent)
        self.reward = rl.ActionCritic(inside, inner, atoms=atoms)
        self.termination = rl.ActionCritic(inside, inner)
        self.critics = rl.ActionCritics(lambda: rl.ActionCritic(inside, inner, atoms=atoms), 2)
        self.policy = rl.PolicyNetwork(inside, inner, make=rl.squashed)
        self.head = rl.SquashedGaussian(spec.action.shape or ())
        self.numbers = rl.TwoHot(atoms)

    def forward(self, obs: rl.Obs) -> Tensor:
        """Return the outputs [B, 2 * dims] of the policy."""
        outputs: Tensor = self.policy(self.encoder(obs))
        return outputs

    def encode(self, obs: rl.Obs) -> Tensor:
        """Return the latents [B, L] of observations."""
        latent: Tensor = self.encoder(obs)
        return latent

    def best(self, latent: Tensor) -> Tensor:
        """Return the policy's best actions [B, dims], without noise."""
        outputs: Tensor = self.policy(latent)
        return outputs.chunk(2, -1)[0].tanh()

    def step(self, latent: Tensor, action: Tensor) -> Tensor:
        """Return the predicted next latents [B, L]."""
        after: Tensor = self.norm(self.dynamics(latent, action))
        return after

    def reward_and_continuation(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the predicted rewards [B], and probabilities [B] that the episode continues."""
        reward = self.numbers(self.reward(latent, action))
        return reward, 1 - self.termination(latent, action).sigmoid()

    def value(self, latent: Tensor) -> Tensor:
        """Return the mean of the critics' values [B] of the policy's best actions."""
        value: Tensor = self.numbers(self.critics(latent, self.best(latent))).mean(0)
        return value
