"""Advantage actor-critic, the synchronous form of A3C (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class A2CConfig(rl.Config):
    """Options of A2C."""

    n_steps: rl.Count = 5  # rollout length per environment
    # average number of replayed rollouts per new one; the number is drawn from a Poisson distribution
    replay_ratio: rl.Scheduled[rl.NonNegative] = 0.0
    # replay rollouts in proportion to (gradient norm)^replay_alpha; 0 replays all of them equally often
    replay_alpha: rl.Fraction = 0.0
    # learn only from replayed rollouts; without it, each new rollout is used once, too
    replay_only: bool = False
    # size of the replay buffer of each worker in env steps, in whole rollouts
    buffer_size: rl.Count = 10_000
    # divide rewards by the running standard deviation of the discounted return
    normalize_reward: bool = False
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 1.0  # GAE lambda; 1 gives n-step returns
    # scale the advantages of a batch to mean 0 and standard deviation 1
    normalize_advantage: bool = False
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
    # PopArt: normalize value targets by running statistics (van Hasselt et al., 2016)
    popart: bool = False
    # memory of policy and critic: gru, lstm, a plugin's id, or ./mine.py:Mine; with options: gru:units=128
    memory: rl.Importable | None = None
    # explore with noise on the weights of the policy's last layer (Fortunato et al., 2018)
    noisy: rl.Noise | None = None
    # initial standard deviation of the noise; default: the paper's
    noisy_sigma: rl.Positive | None = None
    net: rl.Net = rl.Net()
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 7e-4  # learning rate of the optimizer
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # largest gradient norm
    # optimizer of policy and critic; rmsprop as in the paper
    optimizer: rl.OptimizerName = "rmsprop"
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "ent_coef": rl.log(1e-5, 0.1),
        "gae_lambda": rl.uniform(0.8, 1.0),
    }


class A2C(rl.Algorithm[rl.Rollout]):
    """Takes one gradient step per rollout on policy loss, value loss and entropy bonus."""

    Config = A2CConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: A2CConfig

    def build(self) -> None:
        c = self.config
        self.replay = rl.RolloutReplay(
            self.schedule("replay_ratio"), c.buffer_size, c.replay_only, alpha=c.replay_alpha
        )
        self.check_running_statistics()
        rl.check_normalize_advantage(c.normalize_advantage, c.n_steps * self.spec.num_envs)
        self.networks = rl.policy_and_critic(
            self.spec,
            c.net,
            c.memory,
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
        self.predict_outputs = rl.fast_noisy(self.policy, self.inference_backend)
        self.predict_values = rl.value_predictor(self.networks, self.inference_backend)

    def check_running_statistics(self) -> None:
        """Raise UsageError if statistics of values or rewards would be wrong with these options."""
        c = self.config
        if c.popart and self.context.runner != "sync":
            raise rl.UsageError(
                f"popart does not run under '{self.context.runner}': it changes weights in place, and workers share "
                "only the changes of their optimizer; use --runner sync or leave popart at false"
            )
        if c.normalize_reward and self.replay.on:
            raise rl.UsageError(
                "normalize_reward needs rewards in their order, and replay repeats old ones; "
                "leave out normalize_reward or replay_ratio"
            )

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        seeds = self.agent_seeds(rank)
        backend = self.inference_backend
        hold = self.config.n_steps  # noisy layers keep their noise for a rollout
        return rl.policy_agent(self.networks, seeds, backend, log_prob=self.replay.on, hold=hold)

    def buffer(self) -> rl.RolloutBuffer | rl.TrajectoryReplay:
        seeds = self.seeds.child("buffer", self.context.rank)
        return self.replay.buffer(self.config.n_steps, self.spec.num_envs, seeds)

    def learn(
        self,
        batch: rl.Rollout,
        now: A2CConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        rollout = self.scale_reward(batch)
        advantage, target = self.advantages(rollout, now)
        samples = self.networks.samples(rollout, advantage, target, self.device)
        loss, metrics = self.loss(self.critic.normalize(samples), now)
        metrics["loss/gradient_norm"] = self.actor_critic_optimizer.minimize(
            loss, clock, steps_ago=batch.size
        )
        self.critic.update_stats(samples)
        metrics["loss/explained_variance"] = rl.explained_variance(rollout, advantage, target)
        return rl.Result(metrics)

    def advantages(
        self,
        rollout: rl.Rollout,
        now: A2CConfig,
    ) -> tuple[rl.Array, rl.Array]:
        """Return GAE advantages and value targets; with replay, those of V-trace for the current policy."""
        value, next_value = self.predict_values(rollout)
        if not self.replay.on:
            return rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        log_prob = rl.log_probs(rollout, self.policy, self.predict_outputs)
        return rl.vtrace(
            rollout,
            value,
            next_value,
            rl.importance_ratio(rollout, log_prob),
            now.gamma,
            lam=now.gae_lambda,
            center=now.normalize_advantage,
        )

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: A2CConfig,
    ) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Return the loss of section 4 (policy gradient, squared value error, entropy bonus) and metrics."""
        outputs, value = self.networks(*batch.inputs)
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
