"""Asynchronous n-step Q-learning (Mnih et al., 2016, arXiv:1602.01783, algorithm S2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class NStepQConfig(rl.Config):
    """Options of n-step Q-learning."""

    # rollout length per environment, the largest number of rewards in a return
    n_steps: rl.Count = 5
    # average number of replayed rollouts per new one; the number is drawn from a Poisson distribution
    replay_ratio: rl.Scheduled[rl.NonNegative] = 0.0
    # replay rollouts in proportion to (gradient norm)^replay_alpha; 0 replays all of them equally often
    replay_alpha: rl.Fraction = 0.0
    # learn only from replayed rollouts; without it, each new rollout is used once, too
    replay_only: bool = False
    # size of the replay buffer of each worker in env steps, in whole rollouts
    buffer_size: rl.Count = 10_000
    random_steps: rl.Natural = 0  # env steps at the start with random actions
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    exploration_initial_eps: rl.Fraction = 1.0  # initial probability of a random action
    # final probability of a random action, for 4 of 10 workers
    exploration_final_eps: rl.Fraction = 0.1
    # final probabilities of the other workers, in equal shares
    exploration_final_eps_others: tuple[rl.Fraction, ...] = (0.01, 0.5)
    exploration_fraction: rl.Positive = 0.5  # fraction of the run until the final probability
    # more points of the exploration schedule: fraction of the run, probability, fraction, probability, and so on
    exploration_points: tuple[float, ...] = ()
    eval_eps: rl.Fraction = 0.0  # probability of a random action in evaluation
    # choose actions by a softmax of the values at this temperature; default: epsilon-greedy
    softmax_temperature: rl.Scheduled[rl.Positive] | None = None
    # choose the target's action with the online network (van Hasselt et al., 2016)
    double: bool = False
    # updates of the first worker between updates of the target network
    target_update_interval: rl.Count = 100
    # loss of a TD error: mse, or huber (squared within 1, linear beyond)
    loss: rl.Regression = "mse"
    dueling: bool = False  # separate streams for state value and advantages (Wang et al., 2016)
    # explore with noise on the weights of the last layers (Fortunato et al., 2018)
    noisy: rl.Noise | None = None
    # initial standard deviation of the noise; default: the paper's
    noisy_sigma: rl.Positive | None = None
    net: rl.Net = rl.Net()
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the optimizer
    anneal_lr: bool = False  # decrease the learning rate to 0 over the run
    max_grad_norm: rl.Scheduled[rl.Positive] = 1.0  # largest gradient norm
    optimizer: rl.OptimizerName = "rmsprop"  # optimizer of the network; rmsprop as in the paper
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "n_steps": rl.integer(1, 20),
        "target_update_interval": rl.integer(20, 2000),
    }

    def __post_init__(self) -> None:
        rl.check_exploration(
            self.exploration_fraction, self.exploration_points, self.noisy, self.softmax_temperature
        )


class NStepQ(rl.Algorithm[rl.Rollout]):
    """Q-learning on rollouts; all workers share one target network and explore with different epsilons."""

    Config = NStepQConfig
    runners: ClassVar[tuple[str, ...]] = ("async", "sync")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: NStepQConfig

    def build(self) -> None:
        c = self.config
        self.q_network = rl.QNetwork(self.spec, c.net, c.dueling, c.noisy, c.noisy_sigma).to(
            self.device
        )
        self.target_network = rl.target_network(self.q_network)
        self.q_optimizer = self.optimizer("q_network", [self.q_network])
        self.predict_q = rl.fast_noisy(self.q_network, self.inference_backend)
        self.predict_target_q = rl.fast_noisy(self.target_network, self.inference_backend)
        self.target = rl.Target(self.q_network, self.target_network)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        c = self.config
        final_eps = rl.final_epsilon(
            rank,
            c.exploration_final_eps,
            c.exploration_final_eps_others,
            self.seeds.child("epsilon"),
        )
        return rl.explorer_from_options(self, self.q_network, rank, ranks, final_eps)

    def buffer(self) -> rl.RolloutBuffer | rl.TrajectoryReplay:
        c = self.config
        seeds = self.seeds.child("buffer", self.context.rank)
        replay = rl.RolloutReplay(
            self.schedule("replay_ratio"), c.buffer_size, c.replay_only, alpha=c.replay_alpha
        )
        return replay.buffer(c.n_steps, self.spec.num_envs, seeds)

    def learn(
        self,
        batch: rl.Rollout,
        now: NStepQConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        # Noise of noisy layers for each forward pass: online, target, and online again with `double`.
        noise = self.q_network.host_noise(self.generator, 2 + now.double)
        target = self.td_target(batch, noise, now)
        # Samples need advantages, which Q-learning does not use, so the target is passed twice.
        samples = batch.samples(target, target, self.device)
        loss, metrics = self.loss(samples, self.q_network.on_device(noise[0]), now)
        metrics["loss/gradient_norm"] = self.q_optimizer.minimize(loss, clock)
        if self.context.rank == 0 and rl.due(
            clock.updates, clock.updates + 1, now.target_update_interval
        ):
            self.target.move()  # in place, so that all workers see it
        return rl.Result(metrics)

    def td_target(
        self,
        batch: rl.Rollout,
        noise: Sequence[rl.Array | None],
        now: NStepQConfig,
    ) -> rl.Array:
        """Return n-step returns [T, N] to the end of the rollout or episode, plus gamma^k Q_target(s, a).

        Here s is the state after k steps and a its best action by the target network or, with `double`, the online one.
        """

        def best(obs: rl.Obs) -> rl.Array:
            q = self.predict_target_q(obs, noise[1])
            selector = self.predict_q(obs, noise[2]) if now.double else q
            return rl.of_action(q, selector.argmax(-1))

        value, next_value = batch.values(best)
        return rl.gae(batch, value, next_value, now.gamma, lam=1.0)[1]

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        noise: Tensor | None,
        now: NStepQConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared (or Huber) error of Q(s, a); the target is a constant."""
        q = rl.of_action(self.q_network(batch.obs, noise), batch.action)
        loss = batch.mean(rl.regression(q, batch.target, now.loss))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach())}
