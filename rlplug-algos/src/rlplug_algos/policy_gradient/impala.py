"""Importance weighted actor-learner architecture (Espeholt et al., 2018, arXiv:1802.01561)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class IMPALAConfig(rl.Config):
    """Options of IMPALA."""

    n_steps: rl.Count = 20  # rollout length per environment
    # average number of replayed rollouts per new one; the number is drawn from a Poisson distribution
    replay_ratio: rl.Scheduled[rl.NonNegative] = 0.0
    # replay rollouts in proportion to (gradient norm)^replay_alpha; 0 replays all of them equally often
    replay_alpha: rl.Fraction = 0.0
    # learn only from replayed rollouts; without it, each new rollout is used once, too
    replay_only: bool = False
    buffer_size: rl.Count = 10_000  # size of the replay buffer in env steps, in whole rollouts
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # lambda of V-trace; 1 gives n-step targets
    vtrace_lambda: rl.Scheduled[rl.Fraction] = 1.0
    # largest weight of TD errors and of the policy gradient
    vtrace_clip_rho: rl.Scheduled[rl.Positive] = 1.0
    vtrace_clip_c: rl.Scheduled[rl.Positive] = 1.0  # largest weight of traces
    # scale the advantages of a batch to mean 0 and standard deviation 1
    normalize_advantage: bool = False
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.01  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the value loss
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
        "vtrace_lambda": rl.uniform(0.8, 1.0),
    }


class IMPALA(rl.Algorithm[rl.Rollout]):
    """Takes one gradient step per rollout; V-trace corrects for the older policy of the actors."""

    Config = IMPALAConfig
    runners: ClassVar[tuple[str, ...]] = ("decoupled", "sync")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    config: IMPALAConfig

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(c.normalize_advantage, c.n_steps * self.spec.num_envs)
        self.networks = rl.policy_and_critic(
            self.spec, c.net, c.memory, noisy=c.noisy, sigma=c.noisy_sigma, critic_net=c.critic_net
        )
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.actor_critic_optimizer = self.optimizer("actor_critic", [self.policy, self.critic])
        self.predict_outputs = rl.fast_noisy(self.policy, self.inference_backend)
        self.predict_values = rl.value_predictor(self.networks, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        backend = self.inference_backend
        hold = self.config.n_steps  # noisy layers keep their noise for a rollout
        return rl.policy_agent(
            self.networks, self.agent_seeds(rank), backend, log_prob=True, hold=hold
        )

    def buffer(self) -> rl.RolloutBuffer | rl.TrajectoryReplay:
        c = self.config
        replay = rl.RolloutReplay(
            self.schedule("replay_ratio"), c.buffer_size, c.replay_only, alpha=c.replay_alpha
        )
        return replay.buffer(c.n_steps, self.spec.num_envs, self.seeds.child("buffer"))

    def learn(
        self,
        batch: rl.Rollout,
        now: IMPALAConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        log_prob = rl.log_probs(batch, self.policy, self.predict_outputs)
        value, next_value = self.predict_values(batch)
        advantage, value_target = rl.vtrace(
            batch,
            value,
            next_value,
            rl.importance_ratio(batch, log_prob),
            now.gamma,
            lam=now.vtrace_lambda,
            clip_rho=now.vtrace_clip_rho,
            clip_c=now.vtrace_clip_c,
            center=now.normalize_advantage,
        )
        samples = self.networks.samples(batch, advantage, value_target, self.device)
        loss, metrics = self.loss(samples, now)
        metrics["loss/gradient_norm"] = self.actor_critic_optimizer.minimize(
            loss, clock, steps_ago=batch.size
        )
        return rl.Result(metrics)

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        now: IMPALAConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of section 4.2; the weights rho are part of the advantages."""
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
