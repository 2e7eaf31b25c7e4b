"""Networks of a world model: from observations to latent states, and from these to all that a learner predicts."""

from __future__ import annotations

from dataclasses import replace

import torch
from gymnasium import spaces
from torch import Tensor, nn

import rlplug_core as rl

#: The largest number, after `symlog`, that a network predicts: about 22,000.
HIGHEST = 10.0
#: Numbers of a latent that sum to 1.
GROUP = 8


class SimNorm(nn.Module):
    """Softmax over groups of numbers: latents [B, L] have only positive numbers, and each group sums to 1."""

    def forward(self, values: Tensor) -> Tensor:
        groups: Tensor = values.unflatten(-1, (-1, GROUP))
        return groups.softmax(-1).flatten(-2)


class Numbers(nn.Module):
    """Rewards and values as outputs of networks [..., atoms]: two-hot if there are several atoms, else plain."""

    support: Tensor

    def __init__(self, atoms: int) -> None:
        super().__init__()
        self.register_buffer("support", torch.linspace(-HIGHEST, HIGHEST, atoms), persistent=False)

    def forward(self, outputs: Tensor) -> Tensor:
        """Return the predicted numbers [...]."""
        if len(self.support) == 1:
            return outputs.squeeze(-1)
        mean = outputs.softmax(-1) @ self.support
        return mean.sign() * mean.abs().expm1()

    def loss(self, outputs: Tensor, number: Tensor) -> Tensor:
        """Return the squared errors [...], or the cross-entropies to the two atoms around symlog(number)."""
        if len(self.support) == 1:
            return (outputs.squeeze(-1) - number).square()
        symlog = (number.sign() * number.abs().log1p()).clamp(-HIGHEST, HIGHEST)
        distance = (symlog.unsqueeze(-1) - self.support).abs()
        two_hot = (1 - distance * (len(self.support) - 1) / (2 * HIGHEST)).clamp(min=0)
        return -(two_hot * outputs.log_softmax(-1)).sum(-1)


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
        self.numbers = Numbers(atoms)

    def forward(self, obs: rl.Obs) -> Tensor:
        """Return the outputs [B, 2 * dims] of the policy."""
        outputs: Tensor = self.policy(self.encoder(obs))
        return outputs

    def best(self, latent: Tensor) -> Tensor:
        """Return the policy's best actions [B, dims], without noise."""
        outputs: Tensor = self.policy(latent)
        return outputs.chunk(2, -1)[0].tanh()

    def step(self, latent: Tensor, action: Tensor) -> Tensor:
        """Return the predicted next latents [B, L]."""
        after: Tensor = self.norm(self.dynamics(latent, action))
        return after

    def evaluate(self, latent: Tensor, plan: Tensor, gamma: float) -> Tensor:
        """Return the predicted returns of plans.

        Args:
            latent: [B, L] where they start.
            plan: [B, H, dims] actions, which the policy continues.
            gamma: discount per step.

        Returns:
            Returns [B] of H predicted rewards and the value after them.
        """
        total = torch.zeros_like(latent[:, 0])
        discount = torch.ones_like(total)
        for action in plan.unbind(1):
            total = total + discount * self.numbers(self.reward(latent, action))
            discount = discount * gamma * (1 - self.termination(latent, action).sigmoid())
            latent = self.step(latent, action)
        value: Tensor = self.numbers(self.critics(latent, self.best(latent))).mean(0)
        return total + discount * value
