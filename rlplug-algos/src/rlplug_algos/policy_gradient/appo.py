"""Asynchronous PPO: PPO's clip around a target policy, with V-trace (Luo et al., 2020, arXiv:1912.00167).

Actors use older policies than the learner. V-trace corrects their samples to the target policy, a copy of the policy
that changes only every few rollouts. PPO's clip keeps the policy near the target policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class APPOConfig(rl.Config):
    """Options of APPO."""

    n_steps: rl.Count = 128  # rollout length per environment
    batch_size: rl.Count = 256  # samples per minibatch
    n_epochs: rl.Count = 4  # passes over each rollout; an incomplete last minibatch is dropped
    target_update_interval: rl.Count = 4  # rollouts between copies to the target policy
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # lambda of V-trace; 1 gives n-step targets
    vtrace_lambda: rl.Scheduled[rl.Fraction] = 0.95
    # largest weight of TD errors and of the policy gradient
    vtrace_clip_rho: rl.Scheduled[rl.Positive] = 1.0
    vtrace_clip_c: rl.Scheduled[rl.Positive] = 1.0  # largest weight of traces
    # scale the advantages of a minibatch to mean 0 and standard deviation 1
    normalize_advantage: bool = True
    clip_range: rl.Scheduled[rl.Positive] = 0.2  # largest change of the probability ratio from 1
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.0  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # memory of policy and critic: gru, lstm, a plugin's id, or ./mine.py:Mine; with options: gru:units=128
    memory: rl.Importable | None = None
    # explore with noise on the weights of the policy's last layer (Fortunato et al., 2018)
    noisy: rl.Noise | None = None
    # initial standard deviation of the noise; default: the paper's
    noisy_sigma: rl.Positive | None = None
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the optimizer
    anneal_lr: bool = True  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critic
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "clip_range": rl.uniform(0.1, 0.3),
        "ent_coef": rl.log(1e-5, 0.1),
        "vtrace_lambda": rl.uniform(0.8, 1.0),
    }


class APPO(rl.Algorithm[rl.Rollout]):
    """Takes several epochs of minibatch steps on each rollout, with a clipped change from the target policy."""

    Config = APPOConfig
    runners: ClassVar[tuple[str, ...]] = ("decoupled", "sync")
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: APPOConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(
            c.normalize_advantage, min(c.batch_size, c.n_steps * self.spec.num_envs)
        )
        if c.memory is not None:
            rl.check_whole_sequences(c.n_steps, c.batch_size)
        self.networks = rl.policy_and_critic(
            self.spec, c.net, c.memory, noisy=c.noisy, sigma=c.noisy_sigma, critic_net=c.critic_net
        )
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.critic])
        self.target_policy = rl.target_network(self.policy)
        self.target = rl.Target(self.policy, self.target_policy)
        self.predict_outputs = rl.fast_noisy(self.target_policy, self.inference_backend)
        self.predict_values = rl.value_predictor(self.networks, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        backend = self.inference_backend
        hold = self.config.n_steps  # noisy layers keep their noise for a rollout
        return rl.policy_agent(
            self.networks, self.agent_seeds(rank), backend, log_prob=True, hold=hold
        )

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(
        self,
        batch: rl.Rollout,
        now: APPOConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        if rl.due(clock.updates - 1, clock.updates, now.target_update_interval):
            self.target.move()
        samples = self.advantages(batch, now)
        metrics = dict[str, Tensor]()
        for _ in range(now.n_epochs):
            for minibatch in samples.minibatches(now.batch_size, self.generator):
                loss, metrics = self.loss(minibatch, now)
                norm = self.actor_critic_optimizer.minimize(loss, clock, steps_ago=batch.size)
        return rl.Result({**metrics, "loss/gradient_norm": norm})

    def advantages(self, rollout: rl.Rollout, now: APPOConfig) -> rl.Samples:
        """Return samples with V-trace advantages and targets for the target policy, and its log-probabilities."""
        log_prob = rl.log_probs(rollout, self.target_policy, self.predict_outputs)
        value, next_value = self.predict_values(rollout)
        advantage, value_target = rl.vtrace(
            rollout,
            value,
            next_value,
            rl.importance_ratio(rollout, log_prob),
            now.gamma,
            lam=now.vtrace_lambda,
            clip_rho=now.vtrace_clip_rho,
            clip_c=now.vtrace_clip_c,
            center=now.normalize_advantage,
        )
        samples = self.networks.samples(rollout, advantage, value_target, self.device)
        extras = {
            **samples.extras,
            "log_prob": rl.to_tensors(log_prob.reshape(-1), self.device),
        }
        return replace(samples, extras=extras, share=samples.counts)

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: APPOConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return PPO's clipped surrogate around the target policy, squared value error and entropy bonus."""
        outputs, value = self.networks(*batch.inputs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        log_ratio = log_prob - batch.extras["log_prob"]
        ratio = log_ratio.exp()
        advantage = (
            rl.standardize(batch.advantage, batch.weight)
            if now.normalize_advantage
            else batch.advantage
        )
        policy_loss = -rl.clipped_surrogate(ratio, advantage, now.clip_range)
        value_loss = (value - batch.target).square()
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/entropy": entropy,
            "loss/kl": ratio - 1 - log_ratio,
        }
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}
