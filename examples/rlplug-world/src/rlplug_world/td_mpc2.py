"""TD-MPC2: temporal differences and planning in a world model (Hansen, Su and Wang, 2024, arXiv:2310.16828)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import rlplug_core as rl
from rlplug_world.agent import Search, WorldAgent
from rlplug_world.networks import World


@dataclass(frozen=True)
class TDMPC2Config(rl.Config):
    """Options of TD-MPC2."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    random_steps: rl.Natural = 1_000  # first env steps, with uniformly random actions
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 128  # sequences per gradient step
    buffer_size: rl.Count = 1_000_000  # size of the replay buffer in transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    horizon: rl.Count = 3  # steps that the model predicts in a row, in training and in plans
    rho: rl.UnitInterval = 0.5  # weight of each predicted step relative to the step before it
    consistency_coef: rl.NonNegative = 20.0  # weight of the error of latents
    reward_coef: rl.NonNegative = 0.1  # weight of the error of rewards
    value_coef: rl.NonNegative = 0.1  # weight of the error of values
    termination_coef: rl.NonNegative = 1.0  # weight of the error of terminations
    ent_coef: rl.Positive = 1.0  # initial weight of the entropy, which is learned
    tau: rl.Scheduled[rl.UnitInterval] = 0.01  # Polyak averaging of the target critics; 1: copy
    planning_samples: rl.Natural = 0  # plans that are compared per action; 0: act by the policy
    planning_iterations: rl.Count = 3  # how often plans improve before the agent acts
    latent_size: rl.Count = 64  # numbers in a latent
    latent_group: rl.Count = 8  # numbers of a latent that sum to 1
    # outputs for a reward or a value: two-hot on so many atoms; 1 for squared errors
    atoms: rl.Count = 101
    net: rl.Net = rl.Net(hidden=(128,), activation="silu", layer_norm=True)  # encoder
    # networks that read latents
    latent_net: rl.Net = rl.Net(hidden=(128, 128), activation="silu", layer_norm=True)
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the optimizers
    max_grad_norm: rl.Scheduled[rl.Positive] = 20.0  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of model and policy
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {"learning_rate": rl.log(1e-5, 1e-2), "horizon": rl.integer(1, 5)}

    def __post_init__(self) -> None:
        if self.latent_size % self.latent_group:
            raise ValueError(
                f"latent_size {self.latent_size} is not a multiple of latent_group {self.latent_group}; "
                f"make it {self.latent_group * (self.latent_size // self.latent_group + 1)}"
            )


class TDMPC2(rl.Algorithm[rl.Transitions]):
    """Learns a model of latents, rewards, terminations and values from short sequences, and a policy on its latents."""

    Config = TDMPC2Config
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: TDMPC2Config

    def build(self) -> None:
        c = self.config
        self.world = World(self.spec, c.net, c.latent_net, c.latent_size, c.latent_group, c.atoms)
        assert isinstance(self.world.policy.head, rl.SquashedGaussian)
        self.head = self.world.policy.head
        self.target_critics = rl.target_network(self.world.critics)
        self.temperature = rl.Temperature(c.ent_coef, autotune=True)
        self.to(self.device)
        self.model_optimizer = self.optimizer("model", self.world.model)
        self.policy_optimizer = self.optimizer("policy", [self.world.policy, self.temperature])
        self.fixed_critics = rl.NoGradient(self.world.critics)
        self.target = rl.Target(self.world.critics, self.target_critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> WorldAgent:
        c = self.config
        search = Search(c.planning_samples, c.horizon, c.planning_iterations, c.gamma)
        seeds = self.agent_seeds(rank)
        return WorldAgent(self.world, seeds, self.inference_backend, c.random_steps, search)

    def buffer(self) -> rl.SequenceReplay:
        c = self.config
        return rl.SequenceReplay(
            rl.SequenceShape(c.horizon, burn_in=0, period=1),
            c.buffer_size,
            rl.ReplaySchedule(c.batch_size, c.train_freq, c.gradient_steps, c.learning_starts),
            n_step=1,
            gamma=self.schedule("gamma"),
            seeds=self.seeds.child("buffer"),
            device=self.device,
            priority=rl.Priority(alpha=0.0),
            store=c.buffer_storage,
        )

    def learn(self, batch: rl.Transitions, now: TDMPC2Config, clock: rl.Clock) -> rl.Result:
        batch = self.weighted(batch, now)
        shape = (2, len(batch.weight), self.head.dims)
        noise, next_noise = batch.standard_normal(self.generator, shape)
        loss, metrics, latent = self.model_loss(batch, next_noise, now)
        metrics["loss/model_gradient_norm"] = self.model_optimizer.minimize(loss, clock)
        with self.fixed_critics:
            loss, policy_metrics = self.policy_loss(batch, latent, noise)
        metrics |= policy_metrics
        metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        self.target.move(now.tau)
        return rl.Result(metrics)

    def weighted(self, batch: rl.Transitions, now: TDMPC2Config) -> rl.Transitions:
        """Return sequences with the weight rho^t of step t, and 0 after the end of an episode or a gap."""
        shape = (now.horizon, -1)
        connected = batch.extras["valid"].view(shape).bool()
        connected[1:] &= ~batch.extras["is_first"].view(shape)[1:].bool()
        powers = now.rho ** torch.arange(now.horizon, device=self.device)
        weight = batch.weight.view(shape) * connected.cumprod(0) * powers.unsqueeze(1)
        return replace(batch, share=None, weight=weight.flatten())

    @rl.pure
    def model_loss(
        self, batch: rl.Transitions, noise: Tensor, now: TDMPC2Config
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Return the loss (eq. 3), metrics, and the predicted latents [T * B, L] at each step, without a gradient."""
        before, after = self.predict(batch, now)
        next_latent, target = self.targets(batch, noise)
        ended = (batch.discount == 0).to(batch.reward.dtype)
        error = (after - next_latent).square().mean(1)
        consistency = torch.where(ended > 0, 0.0, error)
        numbers = self.world.numbers
        reward = numbers.loss(self.world.reward(before, batch.action), batch.reward)
        q = self.world.critics(before, batch.action)
        value = numbers.loss(q, target.expand(2, -1)).sum(0)
        logit = self.world.termination(before, batch.action)
        termination = binary_cross_entropy_with_logits(logit, ended, reduction="none")
        parts = {
            "consistency": batch.mean(consistency),
            "reward": batch.mean(reward),
            "value": batch.mean(value),
            "termination": batch.mean(termination),
        }
        loss = (
            now.consistency_coef * parts["consistency"]
            + now.reward_coef * parts["reward"]
            + now.value_coef * parts["value"]
            + now.termination_coef * parts["termination"]
        )
        metrics = {f"loss/{name}": part.detach() for name, part in parts.items()}
        metrics["loss/q_mean"] = batch.mean(numbers(q.detach()).mean(0))
        return loss, metrics, before.detach()

    def predict(self, batch: rl.Transitions, now: TDMPC2Config) -> tuple[Tensor, Tensor]:
        """Return latents before and after each action [T * B, L]: only the first observations are encoded."""
        rows = len(batch.weight) // now.horizon
        latents = [self.world.encoder(rl.tree_map(lambda part: part[:rows], batch.obs))]
        for action in batch.action.split(rows):
            latents.append(self.world.dynamics(latents[-1], action))
        return torch.cat(latents[:-1]), torch.cat(latents[1:])

    @torch.no_grad()
    def targets(self, batch: rl.Transitions, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the latents of the next observations [T * B, L], and r + discount * min Q_target(z', a') [T * B]."""
        latent = self.world.encoder(batch.next_obs)
        action, _ = self.head.draw(self.world.policy(latent), noise)
        next_q = self.world.numbers(self.target_critics(latent, action)).amin(0)
        return latent, batch.reward + batch.discount * next_q

    @rl.pure
    def policy_loss(
        self, batch: rl.Transitions, latent: Tensor, noise: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return alpha * log pi(a | z) - Q(z, a), plus the loss of the temperature alpha; and metrics."""
        action, log_prob = self.head.draw(self.world.policy(latent), noise)
        q = self.world.numbers(self.world.critics(latent, action)).mean(0)
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, 1.0, target_entropy=-float(self.head.dims)
        )
