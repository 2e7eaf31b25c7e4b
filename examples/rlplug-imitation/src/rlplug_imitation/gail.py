"""Generative adversarial imitation learning (Ho and Ermon, 2016, arXiv:1606.03476), with PPO as its policy gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

import rlplug_core as rl


@dataclass(frozen=True)
class GAILConfig(rl.Config):
    """Options of GAIL."""

    discriminator_steps: rl.Count = 20  # gradient steps of the discriminator per rollout
    # penalty of the discriminator's gradient between own and shown transitions
    gradient_penalty: rl.Scheduled[rl.NonNegative] = 1.0
    discriminator_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # its learning rate
    n_steps: rl.Count = 256  # rollout length per environment
    batch_size: rl.Count = 256  # samples per minibatch of policy and discriminator
    n_epochs: rl.Count = 10  # passes over each rollout; an incomplete last minibatch is dropped
    gamma: rl.Scheduled[rl.Fraction] = 0.95  # discount per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 0.95  # GAE lambda
    clip_range: rl.Scheduled[rl.Positive] = 0.2  # largest change of the probability ratio from 1
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.0  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    net: rl.Net = rl.Net()
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of policy and critic
    anneal_lr: bool = True  # decrease the learning rates to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of all networks
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-4, 1e-2),
        "discriminator_learning_rate": rl.log(1e-5, 1e-3),
    }


class GAIL(rl.Algorithm[rl.Rollout]):
    """Learns a reward that tells its own transitions from those of a data set, and maximizes it."""

    Config = GAILConfig
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    dataset_use: ClassVar[Literal["required"]] = "required"
    config: GAILConfig

    def build(self) -> None:
        c = self.config
        rl.check_standardize(True, min(c.batch_size, c.n_steps * self.spec.num_envs))
        self.networks = rl.PolicyAndCritic(self.spec, c.net)
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.discriminator = rl.ActionCritic(self.spec, c.net)
        self.ppo_optimizer = self.optimizer("ppo", [self.policy, self.critic])
        rate = "discriminator_learning_rate"
        self.discriminator_optimizer = self.optimizer(
            "discriminator", [self.discriminator], learning_rate=rate
        )
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        seeds = self.agent_seeds(rank)
        return rl.PolicyAgent(self.policy, seeds, self.inference_backend, log_prob=True)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(self, batch: rl.Rollout, now: GAILConfig, clock: rl.Clock) -> rl.Result:
        assert self.dataset is not None
        own = batch.samples(batch.reward, batch.reward, self.device)  # estimates come later
        metrics: dict[str, Tensor | float] = {}
        for _ in range(now.discriminator_steps):
            rows = torch.from_numpy(self.generator.integers(0, len(own.weight), now.batch_size))
            mixing = torch.from_numpy(self.generator.random(now.batch_size, np.float32))
            shown = self.dataset.batch(now.batch_size)
            loss, terms = self.discriminator_loss(own.take(rows), shown, mixing, now)
            self.discriminator_optimizer.minimize(loss, clock)
            metrics |= terms
        with torch.no_grad():
            reward = softplus(self.discriminator(own.obs, own.action))
        shaped = replace(
            batch, reward=rl.like_inputs(reward, batch.reward).reshape(batch.reward.shape)
        )
        estimates = rl.gae(shaped, *batch.values(self.predict_value), now.gamma, now.gae_lambda)
        samples = batch.samples(*estimates, self.device)
        for _ in range(now.n_epochs):
            for minibatch in samples.minibatches(now.batch_size, self.generator):
                loss, terms = self.ppo_loss(minibatch, now)
                self.ppo_optimizer.minimize(loss, clock, age=batch.size)
                metrics |= terms
        return rl.Result({**metrics, "reward/learned": own.mean(reward)})

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
        (slope,) = torch.autograd.grad(
            self.discriminator(obs, between).sum(), between, create_graph=True
        )
        penalty = (slope.norm(dim=1) - 1).clamp(min=0).square()
        loss = shown.mean(softplus(-real)) + own.mean(
            softplus(fake) + now.gradient_penalty * penalty
        )
        right = 0.5 * (shown.mean((real > 0).float()) + own.mean((fake < 0).float()))
        return loss, {"loss/discriminator": loss.detach(), "loss/accuracy": right}

    @rl.pure
    def ppo_loss(self, batch: rl.Samples, now: GAILConfig) -> tuple[Tensor, dict[str, Tensor]]:
        """Return PPO's loss: clipped surrogate, value error and entropy bonus; and metrics."""
        outputs, value = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        ratio = (log_prob - batch.extras["log_prob"]).exp()
        advantage = rl.standardize(batch.advantage, batch.weight)
        policy_loss = -rl.clipped_surrogate(ratio, advantage, now.clip_range)
        value_loss = (value - batch.target).square()
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        return loss, {
            "loss/policy": batch.mean(policy_loss.detach()),
            "loss/value": batch.mean(value_loss.detach()),
        }
