"""ACER for continuous actions (Wang et al., 2017, arXiv:1611.01224, section 5): a stochastic dueling network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class ContinuousACERConfig(rl.Config):
    """Options of ACER for continuous actions."""

    n_steps: rl.Count = 20  # rollout length per environment
    buffer_size: rl.Count = 50_000  # size of the replay buffer in env steps, in whole rollouts
    learning_starts: rl.Natural = 1_000  # env steps before the first rollout is replayed
    # average number of replayed rollouts per new one; the number is drawn from a Poisson distribution
    replay_ratio: rl.Scheduled[rl.NonNegative] = 4.0
    # replay rollouts in proportion to (gradient norm)^replay_alpha; 0 replays all of them equally often
    replay_alpha: rl.Fraction = 0.0
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # largest importance weight of the policy gradient; a correction term removes the bias of larger weights
    max_importance_weight: rl.Scheduled[rl.Positive] = 5.0
    # number of sampled actions; their mean advantage is subtracted from every advantage
    n_action_samples: rl.Count = 5
    # size of the trust region: largest KL divergence from the average policy, by a linear model
    trust_region_delta: rl.Scheduled[rl.Positive] = 1.0
    # decay of the average policy per update
    average_policy_decay: rl.Scheduled[rl.Fraction] = 0.99
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 7e-4  # learning rate of the optimizer
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 10.0  # largest gradient norm
    # optimizer of policy and values; rmsprop as in the paper
    optimizer: rl.OptimizerName = "rmsprop"
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "ent_coef": rl.log(1e-5, 0.1),
        "trust_region_delta": rl.uniform(0.1, 2.0),
    }

    def __post_init__(self) -> None:
        if self.net.squash:
            raise ValueError(
                "acer-continuous needs a Gaussian without a tanh; leave net.squash at false"
            )


class ContinuousACER(rl.Algorithm[rl.Rollout]):
    """ACER with a bias correction at one sampled action instead of a sum over all actions."""

    Config = ContinuousACERConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: ContinuousACERConfig

    def build(self) -> None:
        c = self.config
        critic_net = c.critic_net.over(c.net)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(self.spec, c.net, norm=norm).to(self.device)
        self.average_policy = rl.target_network(self.policy)
        assert isinstance(self.policy.head, rl.Gaussian)
        self.head = self.policy.head
        self.critic = rl.StochasticDueling(self.spec, critic_net, critic_norm).to(self.device)
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.critic])
        self.average = rl.Target(self.policy, self.average_policy)
        self.predict_outputs = rl.fast_forward(self.policy, self.inference_backend)
        self.predict_value = rl.fast_forward(self.critic.value, self.inference_backend)
        self.predict_advantage = rl.fast_forward(self.critic.advantage, "torch")

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.BehaviorAgent:
        return rl.BehaviorAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.RolloutBuffer | rl.TrajectoryReplay:
        c = self.config
        seeds = self.seeds.child("buffer", self.context.rank)
        replay = rl.RolloutReplay(
            self.schedule("replay_ratio"),
            c.buffer_size,
            learning_starts=c.learning_starts,
            alpha=c.replay_alpha,
        )
        return replay.buffer(c.n_steps, self.spec.num_envs, seeds)

    def learn(
        self,
        batch: rl.Rollout,
        now: ContinuousACERConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        samples = self.retrace_targets(batch, now)
        loss, metrics = self.loss(samples, now)
        metrics["loss/gradient_norm"] = self.actor_critic_optimizer.minimize(
            loss, clock, steps_ago=batch.size
        )
        self.average.move(1 - now.average_policy_decay)
        return rl.Result(metrics)

    def retrace_targets(
        self,
        batch: rl.Rollout,
        now: ContinuousACERConfig,
    ) -> rl.Samples:
        """Return samples with Retrace targets; advantages use returns with all weights 1 (section 5.2)."""
        head = self.head
        count = batch.size
        value, next_value = batch.values(self.predict_value)
        obs = batch.flat_obs
        action = batch.action.reshape(count, -1)
        outputs = self.predict_outputs(obs)
        old_outputs = batch.extras["outputs"].reshape(count, -1)
        drawn = self.draw_actions(outputs, now.n_action_samples + 1)
        inputs = {"obs": obs, "action": action, "others": np.ascontiguousarray(drawn[:, 1:])}
        q = value + self.predict_advantage(inputs).reshape(value.shape)
        log_ratio = head.host_log_prob(outputs, action) - head.host_log_prob(old_outputs, action)
        ratio = np.exp(log_ratio).reshape(value.shape)
        target = rl.retrace(
            batch, value, next_value, chosen=q, ratio=ratio ** (1 / head.dims), gamma=now.gamma
        )
        full_return = rl.retrace(
            batch, value, next_value, chosen=q, ratio=np.ones_like(ratio), gamma=now.gamma
        )
        samples = batch.samples(full_return - value, target, self.device)
        extras = rl.to_tensors(
            {"drawn": np.ascontiguousarray(drawn[:, 0]), "others": inputs["others"]}, self.device
        )
        return replace(samples, share=None, extras={**samples.extras, **extras})

    def draw_actions(self, outputs: rl.Array, count: int) -> rl.Array:
        """Return `count` actions [B, count, dims] for each row of the policy's outputs [B, O]."""
        noise = self.head.noise(self.generator, (count, len(outputs)))
        drawn = self.head.sample(outputs, noise)
        return drawn.reshape(count, len(outputs), self.head.dims).swapaxes(0, 1)

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: ContinuousACERConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return policy gradient within the trust region, errors of Q and V, and entropy bonus (section 5.2)."""
        head = self.head
        outputs = self.policy(batch.obs)
        value = self.critic.value(batch.obs)
        inputs = {"obs": batch.obs, "action": batch.action, "others": batch.extras["others"]}
        q = value + self.critic.advantage(inputs)
        with torch.no_grad():
            centered = self.critic.advantage({**inputs, "action": batch.extras["drawn"]})
            weight = (
                head.log_prob(outputs, batch.action)
                - head.log_prob(batch.extras["outputs"], batch.action)
            ).exp()
            value_target = value + weight.clamp(max=1) * (batch.target - q)
        trust_region_gradient = self.trust_region_gradient(
            batch, outputs.detach(), weight, centered, now
        )
        policy_loss = -(trust_region_gradient * outputs).sum(-1)
        entropy = head.entropy(outputs)
        value_loss = (q - batch.target).square() + (value - value_target).square()
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        metrics = {"loss/policy": policy_loss, "loss/value": value_loss, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}

    def trust_region_gradient(
        self,
        batch: rl.Samples,
        outputs: Tensor,
        weight: Tensor,
        centered: Tensor,
        now: ContinuousACERConfig,
    ) -> Tensor:
        """Return the gradient of means and log standard deviations [B, 2 d], within the trust region (eq. 12)."""
        drawn = batch.extras["drawn"]
        limit = now.max_importance_weight
        old_log_prob = self.head.log_prob(batch.extras["outputs"], drawn)
        excess = (1 - limit * (old_log_prob - self.head.log_prob(outputs, drawn)).exp()).clamp(
            min=0
        )
        action = batch.action.reshape(drawn.shape)
        gradient = (weight.clamp(max=limit) * batch.advantage).unsqueeze(1) * rl.gaussian_score(
            outputs, action
        )
        gradient += (excess * centered).unsqueeze(1) * rl.gaussian_score(outputs, drawn)
        with torch.no_grad():
            kl_gradient = rl.gaussian_kl_gradient(self.average_policy(batch.obs), outputs)
            return rl.inside_trust_region(gradient, kl_gradient, now.trust_region_delta)
