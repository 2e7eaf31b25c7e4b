"""Actor-critic using Kronecker-factored trust regions (Wu et al., 2017, arXiv:1708.05144)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import rlplug_core as rl

#: How often a step of the policy is shortened before it is undone, and a safety factor for each new length.
TRIES = 5
MARGIN = 0.98


@dataclass(frozen=True)
class ACKTRConfig(rl.Config):
    """Options of ACKTR."""

    n_steps: rl.Count = 20  # rollout length per environment
    # divide rewards by the running standard deviation of the discounted return
    normalize_reward: bool = False
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 1.0  # GAE lambda; 1 gives n-step returns
    # scale the advantages of a batch to mean 0 and standard deviation 1
    normalize_advantage: bool = False
    # largest mean KL divergence of the policy per update, over the states of the rollout
    kfac_clip: rl.Scheduled[rl.Positive] = 2e-3
    # largest KL divergence of the critic, as the mean of a Gaussian, by K-FAC's quadratic model
    critic_kfac_clip: rl.Scheduled[rl.Positive] = 2e-3
    # damping of the Fisher matrix, added to its eigenvalues
    kfac_damping: rl.Scheduled[rl.Positive] = 0.01
    kfac_update_interval: rl.Count = 10  # updates between eigendecompositions of the Fisher factors
    momentum: rl.Scheduled[rl.Fraction] = 0.9  # momentum of the natural gradient
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # PopArt: normalize value targets by running statistics (van Hasselt et al., 2016)
    popart: bool = False
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    # largest learning rate along the natural gradient
    learning_rate: rl.Scheduled[rl.Positive] = 0.25
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run

    search = {
        "learning_rate": rl.log(0.01, 1.0),
        "kfac_clip": rl.log(1e-4, 1e-2),
        "gae_lambda": rl.uniform(0.8, 1.0),
    }

    def __post_init__(self) -> None:
        if self.net.shared:
            raise ValueError(
                "acktr has a trust region for each of policy and critic; leave net.shared at false"
            )


class ACKTR(rl.Algorithm[rl.Rollout]):
    """Takes one natural gradient step per rollout, preconditioned with K-FAC for policy and critic."""

    Config = ACKTRConfig
    unsound: ClassVar[Mapping[str, str]] = {
        "async": "its workers would use eigenvectors while another worker writes them; a3c has no such matrices",
        "decoupled": "its Fisher matrix needs actions of the current policy, and decoupled actors have older ones; "
        "impala and appo correct that",
    }
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: ACKTRConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(c.normalize_advantage, c.n_steps * self.spec.num_envs)
        self.networks = rl.PolicyAndCritic(self.spec, c.net, c.popart, critic_net=c.critic_net)
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.scale_reward = (
            rl.RewardScale(self.schedule("gamma")) if c.normalize_reward else nn.Identity()
        )
        regions = [(self.policy, c.kfac_clip), (self.critic, c.critic_kfac_clip)]
        # The policy is region 0 of the optimizer, the critic region 1.
        self.kfac = rl.KFAC(regions, c.kfac_damping, c.momentum)
        self.actor_critic_optimizer = self.optimizer(
            "actor_critic", [self.policy, self.critic], rule=self.kfac
        )
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(
        self,
        batch: rl.Rollout,
        now: ACKTRConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        rollout = self.scale_reward(batch)
        value, next_value = rollout.values(self.predict_value)
        advantage, value_target = rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        samples = rollout.samples(advantage, value_target, self.device)
        normalized = self.critic.normalize(samples)
        self.update_fisher(normalized, now, clock)
        with torch.no_grad():
            before = self.policy(samples.obs)
        start = self.kfac.part(self.actor_critic_optimizer.flat, 0).clone()
        loss, metrics = self.loss(normalized, now)
        metrics["loss/gradient_norm"] = self.actor_critic_optimizer.minimize(
            loss, clock, steps_ago=batch.size
        )
        limit = now.kfac_clip * clock.scale**2
        metrics["loss/kl"] = self.bound_divergence(samples, before, start, limit)
        self.kfac.rescale(self.critic.output, self.critic.update_stats(samples))
        return rl.Result(metrics)

    @torch.no_grad()
    def bound_divergence(
        self,
        samples: rl.Samples,
        before: Tensor,
        start: Tensor,
        limit: float,
    ) -> Tensor:
        """Shorten the policy's step until its mean KL divergence is at most `limit`; return the divergence [].

        K-FAC chose the step by a quadratic model, and the divergence is often several times that of the model. It grows
        like the square of a short step, so shortening the step once is usually enough. A step that is still too long
        after `TRIES` times is undone.

        Args:
            samples: the rollout.
            before: [B, ...] outputs of the policy before the step.
            start: [P] the policy's parameters before the step.
            limit: the largest divergence.
        """
        parameters = self.kfac.part(self.actor_critic_optimizer.flat, 0)
        velocity = self.kfac.part(self.kfac.state["velocity"], 0)
        for _ in range(TRIES):
            divergence = samples.mean(self.policy.head.kl(before, self.policy(samples.obs)))
            kl = rl.to_float(divergence)
            if kl <= limit:
                return divergence
            share = MARGIN * (limit / kl) ** 0.5
            parameters.copy_(torch.lerp(start, parameters, share))
            velocity *= share
        parameters.copy_(start)
        velocity.zero_()
        return torch.zeros_like(divergence)

    def update_fisher(
        self,
        samples: rl.Samples,
        now: ACKTRConfig,
        clock: rl.Clock,
    ) -> None:
        """Update the Fisher factors with this batch, and decompose them every `kfac_update_interval` updates."""
        # A controller that reduces learning rates reduces the trust regions, too.
        factor = clock.scale**2
        radii = now.kfac_clip * factor, now.critic_kfac_clip * factor
        self.kfac.tune(radii, now.kfac_damping, now.momentum)
        self.observe(samples)
        if clock.updates == 0 or rl.due(clock.updates, clock.updates + 1, now.kfac_update_interval):
            self.kfac.refresh()

    def observe(self, batch: rl.Samples) -> None:
        """Add the curvature of the policy at its actions, and of the critic as the mean of a Gaussian (section 3.1).

        The score of a Gaussian has the same second moments as the gradient of its mean, so no sample is needed. The
        variance is the mean squared error, so that the critic's trust region does not depend on the scale of rewards.
        """
        with self.kfac.capture() as layers:
            log_prob = self.policy.head.log_prob(self.policy(batch.obs), batch.action)
            mean = self.critic.normalized(batch.obs)
        self.kfac.observe(layers, log_prob + mean, batch.weight)
        valid = batch.weight > 0
        error = (mean.detach() - batch.target).square() * valid
        self.kfac.widen(1, error.sum() / valid.sum().clamp(min=1))

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: ACKTRConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return policy gradient, squared value error and entropy bonus, as in A2C."""
        outputs, value = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        advantage = (
            rl.standardize(batch.advantage, batch.weight)
            if now.normalize_advantage
            else batch.advantage
        )
        policy_loss = -log_prob * advantage
        value_loss = (value - batch.target).square()
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        metrics = {"loss/policy": policy_loss, "loss/value": value_loss, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}
