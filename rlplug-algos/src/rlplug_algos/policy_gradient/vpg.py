"""REINFORCE with a baseline (Williams, 1992; Sutton and Barto, 2018, section 13.4): returns of whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class VPGConfig(rl.Config):
    """Options of REINFORCE."""

    n_steps: rl.Count = 500  # smallest number of env steps per update, in whole episodes
    # divide rewards by the running standard deviation of the discounted return
    normalize_reward: bool = False
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # GAE lambda; 1 bootstraps only truncated episodes
    gae_lambda: rl.Scheduled[rl.Fraction] = 1.0
    # scale the advantages of a batch to mean 0 and standard deviation 1
    normalize_advantage: bool = True
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # PopArt: normalize value targets by running statistics (van Hasselt et al., 2016)
    popart: bool = False
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 3e-3  # learning rate of the optimizer
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critic
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "ent_coef": rl.log(1e-5, 0.1),
        "gae_lambda": rl.uniform(0.8, 1.0),
    }


class VPG(rl.Algorithm[rl.Rollout]):
    """Takes one gradient step per batch of whole episodes on policy loss, value loss and entropy bonus."""

    Config = VPGConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: VPGConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(c.normalize_advantage, c.n_steps * self.spec.num_envs)
        self.networks = rl.PolicyAndCritic(self.spec, c.net, c.popart, critic_net=c.critic_net)
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.scale_reward = (
            rl.RewardScale(self.schedule("gamma")) if c.normalize_reward else nn.Identity()
        )
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.critic])
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.EpisodeBuffer:
        return rl.EpisodeBuffer(self.config.n_steps)

    def learn(
        self,
        batch: rl.Rollout,
        now: VPGConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        rollout = self.scale_reward(batch)
        value, next_value = rollout.values(self.predict_value)
        advantage, value_target = rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        samples = rollout.samples(advantage, value_target, self.device)
        loss, metrics = self.loss(self.critic.normalize(samples), now)
        metrics["loss/gradient_norm"] = self.actor_critic_optimizer.minimize(
            loss, clock, steps_ago=batch.size
        )
        self.critic.update_stats(samples)
        return rl.Result(metrics)

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: VPGConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the policy gradient with a baseline (Sutton and Barto, eq. 13.11), value error and entropy bonus."""
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
