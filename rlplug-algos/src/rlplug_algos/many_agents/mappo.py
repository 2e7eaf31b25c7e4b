"""Multi-agent PPO: PPO with a critic that sees the observations of all agents (Yu et al., 2022, arXiv:2103.01955)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

import rlplug_core as rl
from rlplug_algos.many_agents.world_state import state_space, world_state
from rlplug_core.nets.keys import select_space
from rlplug_core.plugins.index import AT_ONCE


@dataclass(frozen=True)
class MAPPOConfig(rl.Config):
    """Options of multi-agent PPO."""

    n_steps: rl.Count = 128  # rollout length per environment
    batch_size: rl.Count = 512  # samples per minibatch
    n_epochs: rl.Count = 10  # passes over each rollout; an incomplete last minibatch is dropped
    # divide rewards by the running standard deviation of the discounted return
    normalize_reward: bool = False
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 0.95  # GAE lambda
    # scale the advantages of a minibatch to mean 0 and standard deviation 1
    normalize_advantage: bool = True
    clip_range: rl.Scheduled[rl.Positive] = 0.2  # largest change of the probability ratio from 1
    # largest change of a value since the rollout; default: no limit
    clip_range_vf: rl.Scheduled[rl.Positive] | None = None
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # PopArt: normalize value targets by running statistics (van Hasselt et al., 2016)
    popart: bool = True
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 7e-4  # learning rate of the optimizer
    anneal_lr: bool = True  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 10.0  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critic
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "clip_range": rl.uniform(0.05, 0.3),
        "ent_coef": rl.log(1e-4, 0.1),
    }


class MAPPO(rl.Algorithm[rl.Rollout]):
    """All agents share one policy on their own observations, and a critic on the state of the whole world."""

    Config = MAPPOConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    abilities: ClassVar[tuple[str, ...]] = (AT_ONCE,)
    config: MAPPOConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(
            c.normalize_advantage, min(c.batch_size, c.n_steps * self.spec.num_envs)
        )
        self.agents = self.spec.agents_per_world
        self._check_world()
        self.policy = rl.PolicyNetwork(self.spec, c.net)
        critic_net = c.critic_net.over(c.net)
        self.critic_keys = critic_net.obs
        state = state_space(select_space(self.spec.obs, self.critic_keys), self.agents)
        self.critic = rl.Critic(
            replace(self.spec, obs=state), replace(critic_net, obs=()), popart=c.popart
        )
        self.scale_reward = (
            rl.RewardScale(self.schedule("gamma")) if c.normalize_reward else nn.Identity()
        )
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.critic])
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)

    def _check_world(self) -> None:
        """Raise UsageError if the agents' steps cannot be joined: they are tensors, or agents act in turn."""
        if self.spec.device is not None:
            raise rl.UsageError(
                f"mappo joins the agents of a world in arrays, and {self.spec.id} gives tensors on {self.spec.device}; "
                "use ppo, or an environment on the host"
            )
        if self.spec.turns and self.agents > 1:
            raise rl.UsageError(
                f"mappo: the agents of {self.spec.id} act in turn, so its critic would see observations that the "
                "others made after an action; use independent or self-play instead"
            )

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, log_prob=True
        )

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps, self.agents)

    def learn(
        self,
        batch: rl.Rollout,
        now: MAPPOConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        samples = self.advantages(self.scale_reward(batch), now)
        normalized = self.critic.normalize(samples)
        metrics = dict[str, Tensor]()
        for _ in range(now.n_epochs):
            for minibatch in normalized.minibatches(now.batch_size, self.generator):
                loss, metrics = self.loss(minibatch, now)
                norm = self.actor_critic_optimizer.minimize(loss, clock, steps_ago=batch.size)
        self.critic.update_stats(samples)
        return rl.Result({**metrics, "loss/gradient_norm": norm})

    def advantages(self, rollout: rl.Rollout, now: MAPPOConfig) -> rl.Samples:
        """Return samples with GAE advantages, value targets, and the world's state [T * N, S] in `extras["state"]`."""
        states, successors = world_state(rollout, self.spec.obs, self.agents, self.critic_keys)
        shape = rollout.reward.shape
        flat = states.reshape(-1, states.shape[-1])
        value = self.predict_value(flat).reshape(shape)
        next_value = self.predict_value(successors.reshape(flat.shape)).reshape(shape)
        estimates = rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        samples = rollout.samples(*estimates, self.device)
        return replace(
            samples,
            share=samples.counts,
            extras={
                **samples.extras,
                "state": torch.from_numpy(flat).to(self.device),
            },
        )

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: MAPPOConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return PPO's clipped surrogate plus the squared error of the value of the world's state; and metrics."""
        outputs = self.policy(batch.obs)
        value = self.critic.normalized(batch.extras["state"])
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        log_ratio = log_prob - batch.extras["log_prob"]
        ratio = log_ratio.exp()
        advantage = (
            rl.standardize(batch.advantage, batch.weight)
            if now.normalize_advantage
            else batch.advantage
        )
        policy_loss = -rl.clipped_surrogate(ratio, advantage, now.clip_range)
        value_loss = rl.value_error(
            value, batch.target, batch.target - batch.advantage, now.clip_range_vf
        )
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/entropy": entropy,
            "loss/kl": ratio - 1 - log_ratio,
        }
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}
