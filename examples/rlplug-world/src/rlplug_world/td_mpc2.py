"""TD-MPC2: temporal differences and planning in a world model (Hansen, Su and Wang, 2024, arXiv:2310.16828)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

import rlplug_core as rl
from rlplug_world.networks import World

Metrics = dict[str, Tensor]
Loss = tuple[Tensor, Metrics]
#: Weights of the four errors in the loss of the model, as in the authors' code.
COEFFICIENTS = {"consistency": 20.0, "reward": 0.1, "value": 0.1, "termination": 1.0}


@dataclass(frozen=True)
class TDMPC2Config(rl.Config):
    """Options of TD-MPC2."""

    # env steps before the first gradient step, with uniformly random actions
    learning_starts: rl.Count = 1_000
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 128  # sequences per gradient step
    buffer_size: rl.Count = 1_000_000  # size of the replay buffer in transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    horizon: rl.Count = 3  # steps that the model predicts in a row, in training and in plans
    rho: rl.UnitInterval = 0.5  # weight of each predicted step relative to the step before it
    ent_coef: rl.Positive = 1.0  # initial entropy coefficient, which is learned
    tau: rl.Scheduled[rl.UnitInterval] = 0.01  # Polyak averaging of the target critics; 1: copy
    planning_samples: rl.Natural = 0  # plans that are compared per action; 0: act by the policy
    latent_groups: rl.Count = 8  # groups of 8 numbers in a latent; each sums to 1
    # outputs for a reward or a value: two-hot on so many atoms; 1 for squared errors
    atoms: rl.Count = 101
    net: rl.Net = rl.Net(hidden=(128,), activation="silu", layer_norm=True)  # encoder
    # networks that read latents
    latent_net: rl.Net = rl.Net(hidden=(128, 128), activation="silu", layer_norm=True)
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the optimizers
    max_grad_norm: rl.Scheduled[rl.Positive] = 20.0  # largest gradient norm

    search = {"learning_rate": rl.log(1e-5, 1e-2), "horizon": rl.integer(1, 5)}


class TDMPC2(rl.Algorithm[rl.Transitions]):
    """Learns a model of latents, rewards, terminations and values from short sequences, and a policy on its latents."""

    Config = TDMPC2Config
    runners = ("sync", "decoupled")
    actions = ("Box",)
    config: TDMPC2Config

    def build(self) -> None:
        c = self.config
        world = self.world = World(self.spec, c.net, c.latent_net, c.latent_groups, c.atoms)
        self.head = world.head
        self.target_critics = rl.target_network(world.critics)
        self.temperature = rl.Temperature(c.ent_coef, autotune=True)
        self.to(self.device)
        model = (world.encoder, world.dynamics, world.reward, world.termination, world.critics)
        self.model_optimizer = self.optimizer("model", model)
        self.policy_optimizer = self.optimizer("policy", [world.policy, self.temperature])
        self.fixed_critics = rl.NoGradient(world.critics)
        self.target = rl.Target(world.critics, self.target_critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PlanningAgent:
        c = self.config
        planner = rl.Planner(self.world, c.planning_samples, c.horizon, c.gamma)
        seeds = self.agent_seeds(rank)
        return rl.PlanningAgent(planner, seeds, self.inference_backend, c.learning_starts)

    def buffer(self) -> rl.SequenceReplay:
        c = self.config
        shape = rl.SequenceShape(c.horizon, burn_in=0, period=1)
        pace = rl.ReplaySchedule(c.batch_size, c.train_freq, c.gradient_steps, c.learning_starts)
        rest = (self.seeds.child("buffer"), self.device, rl.Priority(alpha=0.0), c.buffer_storage)
        return rl.SequenceReplay(shape, c.buffer_size, pace, 1, self.schedule("gamma"), *rest)

    def learn(self, batch: rl.Transitions, now: TDMPC2Config, clock: rl.Clock) -> rl.Result:
        batch = self.with_weights(batch, now)
        drawn = batch.standard_normal(self.generator, (2, len(batch.weight), self.head.dims))
        loss, metrics, latent = self.model_loss(batch, drawn[0])
        metrics["loss/model_gradient_norm"] = self.model_optimizer.minimize(loss, clock)
        with self.fixed_critics:
            loss, policy_metrics = self.policy_loss(batch, latent, drawn[1])
        metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        self.target.move(now.tau)
        return rl.Result({**metrics, **policy_metrics})

    def with_weights(self, batch: rl.Transitions, now: TDMPC2Config) -> rl.Transitions:
        """Return sequences with the weight rho^t of step t, and 0 after the end of an episode or a gap."""
        shape = (now.horizon, -1)
        valid = batch.extras["valid"].view(shape)
        connected = valid & ~batch.extras["is_first"].view(shape)
        connected[0] = valid[0]
        powers = now.rho ** torch.arange(now.horizon, device=self.device)
        weight = batch.weight.view(shape) * connected.cumprod(0) * powers.unsqueeze(1)
        return replace(batch, share=None, weight=weight.flatten())

    @rl.pure
    def model_loss(self, batch: rl.Transitions, noise: Tensor) -> tuple[Tensor, Metrics, Tensor]:
        """Return the loss (eq. 3), metrics, and the predicted latents [T * B, L] at each step, without a gradient."""
        before, after = self.predict(batch)
        next_latent, target = self.targets(batch, noise)
        ended = (batch.discount == 0).float()
        numbers = self.world.numbers
        q = self.world.critics(before, batch.action)
        logit = self.world.termination(before, batch.action)
        errors = {
            "consistency": torch.where(ended > 0, 0.0, (after - next_latent).square().mean(1)),
            "reward": numbers.loss(self.world.reward(before, batch.action), batch.reward),
            "value": numbers.loss(q, target.expand(2, -1)).sum(0),
            "termination": softplus(logit) - ended * logit,  # the cross-entropy
        }
        parts = {name: batch.mean(rows) for name, rows in errors.items()}
        loss = torch.stack([COEFFICIENTS[name] * part for name, part in parts.items()]).sum()
        metrics = {f"loss/{name}": part.detach() for name, part in parts.items()}
        return loss, metrics, before.detach()

    def predict(self, batch: rl.Transitions) -> tuple[Tensor, Tensor]:
        """Return latents before and after each action [T * B, L]: only the first observations are encoded."""
        rows = len(batch.weight) // self.config.horizon
        latents = [self.world.encoder(rl.tree_map(lambda part: part[:rows], batch.obs))]
        for action in batch.action.split(rows):
            latents.append(self.world.step(latents[-1], action))
        return torch.cat(latents[:-1]), torch.cat(latents[1:])

    @torch.no_grad()
    def targets(self, batch: rl.Transitions, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the latents of the next observations [T * B, L], and r + discount * min Q_target(z', a') [T * B]."""
        latent = self.world.encoder(batch.next_obs)
        action, _ = self.head.draw(self.world.policy(latent), noise)
        next_q = self.world.numbers(self.target_critics(latent, action)).amin(0)
        return latent, batch.reward + batch.discount * next_q

    @rl.pure
    def policy_loss(self, batch: rl.Transitions, latent: Tensor, noise: Tensor) -> Loss:
        """Return alpha * log pi(a | z) - Q(z, a), plus the loss of the entropy coefficient alpha; and metrics."""
        action, log_prob = self.head.draw(self.world.policy(latent), noise)
        q = self.world.numbers(self.world.critics(latent, action)).mean(0)
        target_entropy = -float(self.head.dims)
        return rl.soft_policy_loss(batch, log_prob, q, self.temperature, 1.0, target_entropy)
