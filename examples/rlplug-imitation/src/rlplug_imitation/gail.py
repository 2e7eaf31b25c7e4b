"""Generative adversarial imitation learning (Ho and Ermon, 2016, arXiv:1606.03476): PPO with a learned reward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

import rlplug_core as rl
from rlplug_algos.policy_gradient.ppo import PPO, PPOConfig


@dataclass(frozen=True)
class GAILConfig(PPOConfig):
    """Options of GAIL."""

    discriminator_steps: rl.Count = 20  # gradient steps of the discriminator per rollout
    # penalty of the discriminator's gradient between own and shown transitions
    gradient_penalty: rl.Scheduled[rl.NonNegative] = 1.0
    discriminator_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # its learning rate
    n_steps: rl.Count = 256  # rollout length per environment
    gamma: rl.Scheduled[rl.Fraction] = 0.95  # discount per step
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of policy and critic

    search = {
        "learning_rate": rl.log(1e-4, 1e-2),
        "discriminator_learning_rate": rl.log(1e-5, 1e-3),
    }


class GAIL(PPO):
    """Learns a reward that tells its own transitions from those of a data set, and maximizes it."""

    Config = GAILConfig
    data_parallel: ClassVar[bool] = False
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    dataset_use: ClassVar[Literal["required"]] = "required"
    config: GAILConfig

    def build(self) -> None:
        super().build()
        self.discriminator = rl.ActionCritic(self.spec, self.config.net)
        self.discriminator_optimizer = self.optimizer(
            "discriminator", [self.discriminator], learning_rate="discriminator_learning_rate"
        )

    def learn(self, batch: rl.Rollout, now: PPOConfig, clock: rl.Clock) -> rl.Result:
        assert self.dataset is not None
        assert isinstance(now, GAILConfig)
        own = batch.samples(batch.reward, batch.reward, self.device)  # estimates come later
        for _ in range(now.discriminator_steps):
            rows = torch.from_numpy(self.generator.integers(0, len(own.weight), now.batch_size))
            mixing = torch.from_numpy(self.generator.random(now.batch_size, np.float32))
            shown = self.dataset.batch(now.batch_size)
            loss, metrics = self.discriminator_loss(own.take(rows), shown, mixing, now)
            self.discriminator_optimizer.minimize(loss, clock)
        with torch.no_grad():
            reward = softplus(self.discriminator(own.obs, own.action))
        shaped = replace(
            batch, reward=rl.like_inputs(reward, batch.reward).reshape(batch.reward.shape)
        )
        result = super().learn(shaped, now, clock)
        return rl.Result({**result.metrics, **metrics, "reward/learned": own.mean(reward)})

    @rl.pure.by_autograd
    def discriminator_loss(
        self, own: rl.Samples, shown: rl.Transitions, mixing: Tensor, now: GAILConfig
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the cross-entropy of own (0) and shown (1) transitions plus a gradient penalty; and metrics.

        The penalty is that of Gulrajani et al. (2017, arXiv:1704.00028, eq. 3), in the actions.
        """
        real = self.discriminator(shown.obs, shown.action)
        fake = self.discriminator(own.obs, own.action)
        share = mixing.to(real.device)
        between = torch.lerp(own.action, shown.action, share[:, None]).requires_grad_()
        obs = rl.tree_map(
            lambda a, b: torch.lerp(a, b, share.view(-1, *[1] * (a.ndim - 1))), own.obs, shown.obs
        )
        (gradient,) = torch.autograd.grad(
            self.discriminator(obs, between).sum(), between, create_graph=True
        )
        penalty = (gradient.norm(dim=1) - 1).clamp(min=0).square()
        loss = shown.mean(softplus(-real)) + own.mean(
            softplus(fake) + now.gradient_penalty * penalty
        )
        right = 0.5 * (shown.mean((real > 0).float()) + own.mean((fake < 0).float()))
        return loss, {"loss/discriminator": loss.detach(), "loss/accuracy": right}
