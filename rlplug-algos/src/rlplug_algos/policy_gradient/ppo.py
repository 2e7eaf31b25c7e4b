"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class PPOConfig(rl.Config):
    """Options of PPO."""

    n_steps: rl.Count = 128  # rollout length per environment
    batch_size: rl.Count = 256  # samples per minibatch
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
    # stop learning from a rollout after an epoch with a KL divergence above this in its last minibatch
    target_kl: rl.Scheduled[rl.Positive] | None = None
    # adapt the learning rate: divide it by 1.5 if the KL divergence of a rollout's last minibatch is above twice this,
    # multiply it by 1.5 if it is below half of this
    desired_kl: rl.Positive | None = None
    # also learn from mirrored samples: ./mine.py:mirror, a function that mirrors observations and actions
    symmetry: rl.Importable | None = None
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.0  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # PopArt: normalize value targets by running statistics (van Hasselt et al., 2016)
    popart: bool = False
    # memory of policy and critic: gru, lstm, a plugin's id, or ./mine.py:Mine; with options: gru:units=128
    memory: rl.Importable | None = None
    recurrent_cell: rl.CellName | None = None  # former name of memory
    recurrent_hidden_size: rl.Count | None = None  # former name of a memory's units
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
        "gae_lambda": rl.uniform(0.8, 1.0),
    }


class PPO(rl.Algorithm[rl.Rollout]):
    """Takes several epochs of minibatch steps on each rollout, with a clipped change of the policy."""

    Config = PPOConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: PPOConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(
            c.normalize_advantage, min(c.batch_size, c.n_steps * self.spec.num_envs)
        )
        self._check_kl_steps()
        memory = rl.memory_option(c.memory, c.recurrent_cell, c.recurrent_hidden_size)
        if memory:  # its name and options, such as "gru:units=64"
            rl.check_whole_sequences(c.n_steps, c.batch_size)
        self.augment = rl.symmetry(c.symmetry, memory)
        self.networks = rl.policy_and_critic(
            self.spec,
            c.net,
            memory,
            c.popart,
            noisy=c.noisy,
            sigma=c.noisy_sigma,
            critic_net=c.critic_net,
        )
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.scale_reward = (
            rl.RewardScale(self.schedule("gamma")) if c.normalize_reward else nn.Identity()
        )
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.critic])
        self.predict_values = rl.value_predictor(self.networks, self.inference_backend)

    def _check_kl_steps(self) -> None:
        """Raise UsageError if `desired_kl` is set and a rollout has only one gradient step.

        The KL divergence is computed before the step, so it would always be 0.
        """
        c = self.config
        rows = c.n_steps * self.spec.num_envs
        if c.desired_kl is not None and c.n_epochs == 1 and 2 * c.batch_size > rows:
            raise rl.UsageError(
                "desired_kl needs several gradient steps per rollout, because the KL divergence is 0 before the first "
                "one; increase --n-epochs"
            )

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        seeds = self.agent_seeds(rank)
        backend = self.inference_backend
        hold = self.config.n_steps  # noisy layers keep their noise for a rollout
        return rl.policy_agent(self.networks, seeds, backend, log_prob=True, hold=hold)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(
        self,
        batch: rl.Rollout,
        now: PPOConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        """Take up to `n_epochs` passes over a rollout. `now` is the config with the current values of schedules."""
        samples, explained_variance = self.advantages(self.scale_reward(batch), now)
        # Without PopArt these are the same samples.
        normalized = self.critic.normalize(samples)
        rows = batch.size
        for _ in range(now.n_epochs):
            for minibatch in normalized.minibatches(now.batch_size, self.generator):
                minibatch = self.augment(minibatch)  # adds mirrored samples with `symmetry`
                loss, terms = self.loss(minibatch, now)
                # Every minibatch of a rollout uses the learning rate at the start of the rollout.
                norm = self.actor_critic_optimizer.minimize(loss, clock, steps_ago=rows)
            # Checked once per epoch, because reading a number from a GPU waits for the GPU.
            if now.target_kl is not None and rl.to_float(self.kl(minibatch, terms)) > now.target_kl:
                break
        if now.desired_kl is not None:
            kl = rl.to_float(self.kl(minibatch, terms))
            self.actor_critic_optimizer.adapt(kl, now.desired_kl)
        self.critic.update_stats(samples)
        metrics = self.metrics(minibatch, terms, now)
        metrics["loss/gradient_norm"] = norm
        metrics["loss/explained_variance"] = explained_variance
        return rl.Result(metrics)

    def advantages(
        self,
        rollout: rl.Rollout,
        now: PPOConfig,
    ) -> tuple[rl.Samples, float | Tensor]:
        """Return samples with GAE advantages and value targets, and the explained variance of the values.

        With a memory each sample is a whole sequence.
        """
        value, next_value = self.predict_values(rollout)
        advantage, target = rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        explained_variance = rl.explained_variance(rollout, advantage, target)
        samples = self.networks.samples(rollout, advantage, target, self.device)
        return samples, explained_variance

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: PPOConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of eq. 9: clipped surrogate (eq. 7), value error and entropy bonus; and its terms.

        The terms have a value for each sample [B]; `metrics` averages those of the last minibatch.
        """
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
        old_value = batch.target - batch.advantage  # GAE's value target is their sum
        value_loss = rl.value_error(value, batch.target, old_value, now.clip_range_vf)
        loss = batch.mean(policy_loss + now.vf_coef * value_loss - now.ent_coef * entropy)
        terms = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/entropy": entropy,
            "log_ratio": log_ratio,
        }
        return loss, {name: term.detach() for name, term in terms.items()}

    def kl(self, batch: rl.Samples, terms: dict[str, Tensor]) -> Tensor:
        """Return an estimate of KL(old policy || policy): the mean of ratio - 1 - log ratio."""
        log_ratio = terms["log_ratio"]
        return batch.mean(log_ratio.exp() - 1 - log_ratio)

    @rl.pure.without_gradient
    def metrics(
        self,
        batch: rl.Samples,
        terms: dict[str, Tensor],
        now: PPOConfig,
    ) -> dict[str, Tensor | float]:
        """Return metrics of a minibatch from the terms of its loss."""
        names = ("loss/policy", "loss/value", "loss/entropy")
        clipped = (terms["log_ratio"].exp() - 1).abs() > now.clip_range
        return {
            **{name: batch.mean(terms[name]) for name in names},
            "loss/kl": self.kl(batch, terms),
            "loss/clip_fraction": batch.mean(clipped.float()),
        }
