"""Trust region policy optimization (Schulman et al., 2015, arXiv:1502.05477): natural gradient and a line search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class TRPOConfig(rl.Config):
    """Options of TRPO."""

    n_steps: rl.Count = 512  # rollout length per environment
    # divide rewards by the running standard deviation of the discounted return
    normalize_reward: bool = False
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 0.95  # GAE lambda
    # largest mean KL divergence between the policies before and after an update
    target_kl: rl.Scheduled[rl.Positive] = 0.01
    cg_damping: rl.Scheduled[rl.Positive] = 0.1  # damping of the Fisher matrix
    cg_max_steps: rl.Count = 10  # conjugate gradient steps
    # number of step sizes that the line search tries, each 0.8 times the previous one
    line_search_max_iter: rl.Count = 10
    sub_sampling_factor: rl.Count = 1  # Fisher-vector products use every n-th sample
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.0  # weight of the entropy bonus in the loss
    # passes of the critic over each rollout; an incomplete last minibatch is dropped
    n_critic_updates: rl.Count = 10
    batch_size: rl.Count = 128  # samples per minibatch of the critic
    # PopArt: normalize value targets by running statistics (van Hasselt et al., 2016)
    popart: bool = False
    # memory of the policy: gru, lstm, a plugin's id, or ./mine.py:Mine; the critic uses it and does not train it
    memory: rl.Importable | None = None
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    # learning rate of the critic; the policy has none
    critic_learning_rate: rl.Scheduled[rl.Positive] = 1e-3
    optimizer: rl.OptimizerName = "adam"  # optimizer of the critic
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "target_kl": rl.log(1e-3, 0.1),
        "critic_learning_rate": rl.log(1e-4, 1e-2),
        "gae_lambda": rl.uniform(0.8, 1.0),
    }


class TRPO(rl.Algorithm[rl.Rollout]):
    """Takes one policy step per rollout, the longest that its mean KL divergence allows."""

    Config = TRPOConfig
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: TRPOConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(True, c.n_steps * self.spec.num_envs)
        self.networks = rl.policy_and_critic(
            self.spec, c.net, c.memory, c.popart, apart=True, critic_net=c.critic_net
        )
        self.policy = self.networks.policy.to(self.device)
        self.critic = self.networks.critic
        self.scale_reward = (
            rl.RewardScale(self.schedule("gamma")) if c.normalize_reward else nn.Identity()
        )
        self.trust_region = rl.TrustRegion(self.policy, c.cg_max_steps, c.line_search_max_iter)
        self.critic_optimizer = self.optimizer(
            "critic", [self.critic], learning_rate="critic_learning_rate"
        )
        self.predict_values = rl.value_predictor(self.networks, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.policy_agent(self.networks, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(
        self,
        batch: rl.Rollout,
        now: TRPOConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        rollout = self.scale_reward(batch)
        value, next_value = self.predict_values(rollout)
        advantage, value_target = rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        samples = self.networks.samples(rollout, advantage, value_target, self.device)
        metrics = self.improve(samples, now)
        # Before the critic's steps, because targets on an old scale would give large gradients, which nothing clips.
        self.critic.update_stats(samples)
        critic_samples = self.networks.critic_samples(self.critic.normalize(samples))
        for _ in range(now.n_critic_updates):
            for minibatch in critic_samples.minibatches(now.batch_size, self.generator):
                value_loss = minibatch.mean(
                    (self.critic.normalized(minibatch.obs) - minibatch.target).square()
                )
                norm = self.critic_optimizer.minimize(value_loss, clock, steps_ago=batch.size)
        return rl.Result(
            {
                **metrics,
                "loss/value": value_loss.detach(),
                "loss/gradient_norm": norm,
                "loss/explained_variance": rl.explained_variance(rollout, advantage, value_target),
            }
        )

    def improve(
        self,
        samples: rl.Samples,
        now: TRPOConfig,
    ) -> dict[str, Tensor | float]:
        """Take one step of the policy within the trust region (section 6, appendix C); return metrics."""
        with torch.no_grad():
            before = self.policy(*samples.inputs)
        advantage = rl.standardize(samples.advantage, samples.weight)
        batch = replace(samples, share=None, advantage=advantage, extras={"before": before})
        subset = batch.every(now.sub_sampling_factor)
        move = self.trust_region.step(
            lambda: self.loss(batch, now),
            lambda: self.divergence(batch),
            curvature=lambda: self.divergence(subset),
            radius=now.target_kl,
            damping=now.cg_damping,
        )
        return {
            "loss/policy": move.loss,
            "loss/kl": move.divergence,
            "loss/failed_tries": float(move.failed),
        }

    @rl.pure.by_autograd  # the trust region needs second derivatives
    def loss(self, batch: rl.Samples, now: TRPOConfig) -> Tensor:
        """Return the negative surrogate (eq. 14) with the entropy bonus; `extras["before"]` are the old outputs."""
        log_prob, entropy = self.policy.head.log_prob_and_entropy(
            self.policy(*batch.inputs), batch.action
        )
        ratio = (log_prob - self.policy.head.log_prob(batch.extras["before"], batch.action)).exp()
        return -batch.mean(ratio * batch.advantage + now.ent_coef * entropy)

    def divergence(self, batch: rl.Samples) -> Tensor:
        """Return the mean KL divergence from the old policy to the current one."""
        return batch.mean(self.policy.head.kl(batch.extras["before"], self.policy(*batch.inputs)))
