"""Actor-critic with experience replay, ACER (Wang et al., 2017, arXiv:1611.01224), for discrete actions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import rlplug_core as rl

#: The smallest divisor.
TINY = 1e-8


@dataclass(frozen=True)
class ACERConfig(rl.Config):
    """Options of ACER."""

    n_steps: rl.Count = 20  # rollout length per environment
    buffer_size: rl.Count = 50_000  # size of the replay buffer in env steps, in whole rollouts
    learning_starts: rl.Natural = 1_000  # env steps before the first rollout is replayed
    # average number of replayed rollouts per new one; the number is drawn from a Poisson distribution
    replay_ratio: rl.Scheduled[rl.NonNegative] = 4.0
    # replay rollouts in proportion to (gradient norm)^replay_alpha; 0 replays all of them equally often
    replay_alpha: rl.Fraction = 0.0
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # largest importance weight of the policy gradient; a correction term removes the bias of larger weights
    max_importance_weight: rl.Scheduled[rl.Positive] = 10.0
    # size of the trust region: largest KL divergence from the average policy, by a linear model
    trust_region_delta: rl.Scheduled[rl.Positive] = 1.0
    # decay of the average policy per update
    average_policy_decay: rl.Scheduled[rl.Fraction] = 0.99
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # explore with noise on the weights of the policy's last layer (Fortunato et al., 2018)
    noisy: rl.Noise | None = None
    # initial standard deviation of the noise; default: the paper's
    noisy_sigma: rl.Positive | None = None
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


class ACER(rl.Algorithm[rl.Rollout]):
    """Combines truncated importance weights, Retrace targets and a trust region around an average policy."""

    Config = ACERConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: ACERConfig

    def build(self) -> None:
        c = self.config
        critic_net = replace(c.critic_net.over(c.net), output_gain=None)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(
            self.spec, c.net, norm=norm, noisy=c.noisy, sigma=c.noisy_sigma
        ).to(self.device)
        self.average_policy = rl.target_network(self.policy)
        self.q_network = rl.QNetwork(self.spec, critic_net, norm=critic_norm).to(self.device)
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.q_network])
        self.average = rl.Target(self.policy, self.average_policy)
        self.predict_logits = rl.fast_noisy(self.policy, self.inference_backend)
        self.predict_q = rl.fast_forward(self.q_network, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.BehaviorAgent:
        hold = self.config.n_steps  # noisy layers keep their noise for a rollout
        return rl.BehaviorAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, hold=hold
        )

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
        now: ACERConfig,
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
        now: ACERConfig,
    ) -> rl.Samples:
        """Return the rollout's samples with Retrace targets of action values (eq. 5), and advantages over V."""
        noise = self.policy.fresh_noise(self.generator)
        value, next_value = batch.values(
            lambda obs: (self.predict_probs(obs, noise) * self.predict_q(obs)).sum(-1)
        )
        obs = batch.flat_obs
        action = batch.action.reshape(-1, 1)
        old_prob = np.take_along_axis(
            softmax(batch.extras["outputs"].reshape(len(action), -1)), action, 1
        )
        prob = np.take_along_axis(self.predict_probs(obs, noise), action, 1)
        q = np.take_along_axis(self.predict_q(obs), action, 1).reshape(value.shape)
        ratio = (prob / np.maximum(old_prob, TINY)).reshape(value.shape)
        target = rl.retrace(batch, value, next_value, chosen=q, ratio=ratio, gamma=now.gamma)
        return self.policy.with_noise(batch.samples(target - value, target, self.device), noise)

    def predict_probs(self, obs: rl.Obs, noise: rl.Array | None) -> rl.Array:
        """Return the probabilities [B, A] of the current policy as an array."""
        return softmax(self.predict_logits(obs, noise))

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: ACERConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the policy gradient within the trust region (eq. 9 to 12), squared Retrace error and entropy bonus."""
        log_probs = self.policy(*batch.inputs).log_softmax(-1)
        q = self.q_network(batch.obs)
        probs = log_probs.exp()
        trust_region_gradient = self.trust_region_gradient(batch, probs.detach(), q.detach(), now)
        policy_loss = -(trust_region_gradient * probs).sum(-1)
        entropy = -(probs * log_probs).sum(-1)
        value_loss = (rl.of_action(q, batch.action) - batch.target).square()
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        metrics = {"loss/policy": policy_loss, "loss/value": value_loss, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}

    def trust_region_gradient(
        self,
        batch: rl.Samples,
        probs: Tensor,
        q: Tensor,
        now: ACERConfig,
    ) -> Tensor:
        """Return the gradient [B, A] of eq. 9, projected into the trust region of eq. 11 by eq. 12."""
        safe = probs.clamp(min=TINY)
        ratio = probs / batch.extras["outputs"].softmax(-1).clamp(min=TINY)
        one_hot = nn.functional.one_hot(batch.action, probs.shape[1])
        gradient = (
            ratio.clamp(max=now.max_importance_weight)
            * one_hot
            * batch.advantage.unsqueeze(1)
            / safe
        )
        excess = (1 - now.max_importance_weight / ratio.clamp(min=TINY)).clamp(min=0)
        gradient += excess * (q - (probs * q).sum(-1, keepdim=True)) * probs / safe
        with torch.no_grad():
            kl_gradient = -self.average_policy(*batch.inputs).softmax(-1) / safe
        return rl.inside_trust_region(gradient, kl_gradient, now.trust_region_delta)


def softmax(logits: rl.Array) -> rl.Array:
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    return probs / probs.sum(-1, keepdims=True)
