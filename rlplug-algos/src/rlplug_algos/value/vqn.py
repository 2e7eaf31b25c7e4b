"""Online Q-learning with a network (Watkins, 1989; Mnih et al., 2013): without replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class VQNConfig(rl.Config):
    """Options of VQN."""

    random_steps: rl.Natural = 0  # env steps at the start with random actions
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    exploration_initial_eps: rl.Fraction = 1.0  # initial probability of a random action
    exploration_final_eps: rl.Fraction = 0.02  # final probability of a random action
    exploration_fraction: rl.Positive = 0.5  # fraction of the run until the final probability
    # more points of the exploration schedule: fraction of the run, probability, fraction, probability, and so on
    exploration_points: tuple[float, ...] = ()
    eval_eps: rl.Fraction = 0.0  # probability of a random action in evaluation
    # choose actions by a softmax of the values at this temperature; default: epsilon-greedy
    softmax_temperature: rl.Scheduled[rl.Positive] | None = None
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
    optimizer: rl.OptimizerName = "adam"  # optimizer of the network
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {"learning_rate": rl.log(1e-5, 1e-2)}

    def __post_init__(self) -> None:
        rl.check_exploration(
            self.exploration_fraction, self.exploration_points, self.noisy, self.softmax_temperature
        )


class VQN(rl.Algorithm[rl.Rollout]):
    """Takes one gradient step per vector step; many parallel environments replace the replay buffer."""

    Config = VQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: VQNConfig

    def build(self) -> None:
        c = self.config
        self.q_network = rl.QNetwork(self.spec, c.net, c.dueling, c.noisy, c.noisy_sigma).to(
            self.device
        )
        self.q_optimizer = self.optimizer("q_network", [self.q_network])
        self.predict_q = rl.fast_noisy(self.q_network, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        return rl.explorer_from_options(self, self.q_network, rank, ranks)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(1)

    def learn(
        self,
        batch: rl.Rollout,
        now: VQNConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        # Noise of noisy layers for each forward pass: of the loss, and of the target.
        noise = self.q_network.host_noise(self.generator, 2)
        target = self.td_target(batch, noise, now)
        # Samples need advantages, which Q-learning does not use, so the target is passed twice.
        samples = batch.samples(target, target, self.device)
        loss, metrics = self.loss(samples, self.q_network.on_device(noise[0]), now)
        metrics["loss/gradient_norm"] = self.q_optimizer.minimize(loss, clock)
        return rl.Result(metrics)

    def td_target(
        self,
        batch: rl.Rollout,
        noise: Sequence[rl.Array | None],
        now: VQNConfig,
    ) -> rl.Array:
        """Return r + gamma * max_a Q(s', a) [T, N]."""
        value, next_value = batch.values(lambda obs: rl.best_value(self.predict_q(obs, noise[1])))
        return rl.gae(batch, value, next_value, now.gamma, lam=1.0)[1]

    @rl.pure
    def loss(
        self,
        batch: rl.Samples,
        noise: Tensor | None,
        now: VQNConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the squared (or Huber) error of Q(s, a); the target is a constant."""
        q = rl.of_action(self.q_network(batch.obs, noise), batch.action)
        loss = batch.mean(rl.regression(q, batch.target, now.loss))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach())}
