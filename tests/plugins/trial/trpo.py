"""Trust region policy optimisation (Schulman et al., 2015, arXiv:1502.05477): natural gradient and a line search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlplug_core import Algorithm, Config
from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.batches import Rollout, Samples, standardise
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Count, Fraction, Positive
from rlplug_core.estimators import gae
from rlplug_core.nets.modules import Critic, Policy
from rlplug_core.nets.net import Net
from rlplug_core.optimiser import flatten, host
from rlplug_core.schedules import constant
from rlplug_core.types import Result


@dataclass(frozen=True)
class TRPOConfig(Config):
    """Options of TRPO."""

    steps: Count = 64  # rollout length per environment row
    gamma: Fraction = 0.99  # discount per step
    lam: Fraction = 0.95  # GAE lambda
    kl: Positive = 0.02  # how far the policy may move, as mean KL divergence
    damping: Positive = 0.1  # what is added to the Fisher matrix
    directions: Count = 10  # conjugate gradient steps
    halvings: Count = 8  # step sizes that the line search tries
    critic_lr: Positive = 1e-3  # step size of Adam for the critic
    critic_steps: Count = 10  # gradient steps of the critic per rollout
    net: Net = Net(hidden=(64,))


class TRPO(Algorithm[Rollout]):
    """The policy's parameters change in place, by a line search that reads the host."""

    Config = TRPOConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: TRPOConfig

    def build(self) -> None:
        c = self.config
        self.policy, self.critic = Policy(self.spec, c.net), Critic(self.spec, c.net)
        self.optim = self.optimiser([self.critic], constant(c.critic_lr), 0.5)
        self.parts = list(self.policy.parameters())
        self.flat, _ = flatten(self.parts)
        self.values = forward(self.critic, self.acting)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.steps)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        c = self.config
        value, successor = batch.values(self.values)
        samples = batch.samples(*gae(batch, value, successor, c.gamma, c.lam), self.device)
        samples.advantage = standardise(samples.advantage, samples.weight)
        metrics = self.improve(samples)
        for _ in range(c.critic_steps):
            loss = samples.mean((self.critic(samples.obs) - samples.target).square())
            self.optim.minimise(loss, clock)
        return Result({**metrics, "loss/value": loss.detach()})

    def improve(self, batch: Samples) -> dict[str, Tensor | float]:
        """One natural gradient step (section 6 and appendix C), shrunk until it improves within the region."""
        c = self.config
        with torch.no_grad():
            old = self.policy(batch.obs)
            old_log_prob = self.policy.head.log_prob(old, batch.action)
        surrogate, _ = self.loss((batch, old_log_prob))
        gradient = self.gradient(surrogate)
        divergence = batch.mean(self.policy.head.kl(old, self.policy(batch.obs)))
        slope = self.gradient(divergence, create_graph=True)

        def fisher(vector: Tensor) -> Tensor:
            return self.gradient(slope @ vector, retain_graph=True) + c.damping * vector

        direction = conjugate_gradient(fisher, -gradient, c.directions)
        length = (2 * c.kl / (direction @ fisher(direction)).clamp(min=1e-12)).sqrt()
        start, best = self.flat.clone(), surrogate.detach()
        for halving in range(c.halvings):
            self.flat.copy_(start + 0.5**halving * length * direction)
            with torch.no_grad():
                gain = best - self.loss((batch, old_log_prob))[0]
                moved = batch.mean(self.policy.head.kl(old, self.policy(batch.obs)))
            if host(gain) > 0 and host(moved) <= 1.5 * c.kl:
                return {"loss/policy": best, "loss/kl": moved, "loss/halvings": float(halving)}
        self.flat.copy_(start)
        return {"loss/policy": best, "loss/kl": 0.0, "loss/halvings": float(c.halvings)}

    def loss(self, batch: tuple[Samples, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The surrogate (eq. 14), to be minimised."""
        samples, old_log_prob = batch
        log_prob = self.policy.head.log_prob(self.policy(samples.obs), samples.action)
        return -samples.mean((log_prob - old_log_prob).exp() * samples.advantage), {}

    def gradient(self, value: Tensor, create_graph: bool = False, retain_graph: bool | None = None) -> Tensor:
        parts = torch.autograd.grad(value, self.parts, create_graph=create_graph, retain_graph=retain_graph)
        return torch.cat([part.reshape(-1) for part in parts])


def conjugate_gradient(product: Callable[[Tensor], Tensor], wanted: Tensor, steps: int) -> Tensor:
    """x with product(x) close to `wanted`, after at most `steps` steps (Hestenes and Stiefel, 1952)."""
    solution, residual = torch.zeros_like(wanted), wanted.clone()
    direction, square = residual.clone(), residual @ residual
    for _ in range(steps):
        image = product(direction)
        size = square / (direction @ image).clamp(min=1e-12)
        solution += size * direction
        residual -= size * image
        square, before = residual @ residual, square
        direction = residual + square / before.clamp(min=1e-12) * direction
    return solution
