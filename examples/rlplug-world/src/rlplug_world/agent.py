"""How a world model acts: by its policy, or by planning from the policy's actions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import rlplug_core as rl
from rlplug_world.networks import World

#: How often plans improve.
ITERATIONS = 3
#: Share of the plans that the next iteration learns from.
ELITES = 1 / 8
#: Weight of a difference between two returns.
TEMPERATURE = 0.5
#: Smallest and largest deviation of planned actions.
STD = (0.05, 0.5)
#: Deviation of an exploring agent's actions from its plan.
EXPLORATION = 0.1


class Planner(nn.Module):
    """Model predictive path integral control (Williams et al., 2015, arXiv:1509.01149) in the latent space.

    Every plan has the same noise, so an observation always has the same plan.

    Args:
        world: the model.
        samples: plans in each iteration; 0: the policy's actions.
        horizon: actions in a plan.
        gamma: discount per step.
    """

    def __init__(self, world: World, samples: int, horizon: int, gamma: float) -> None:
        super().__init__()
        self.world = world
        self.samples = samples
        self.horizon = horizon if samples else 1
        self.gamma = gamma
        shape = (ITERATIONS if samples else 0, samples, horizon, world.head.dims)
        noise = np.random.default_rng(0).standard_normal(shape, np.float32)
        self.register_buffer("noise", torch.from_numpy(noise).to(world.numbers.support.device))

    def forward(self, obs: rl.Obs) -> Tensor:
        """Improve the plan that the policy makes.

        Args:
            obs: [N, ...] observations.

        Returns:
            The first action of the plan, [N, ...].
        """
        latent = self.world.encoder(obs)
        mean = self.policy_plan(latent)
        std = torch.full_like(mean, STD[1])
        start = latent.unsqueeze(1).expand(-1, self.samples, -1).flatten(0, 1)
        for noise in self.get_buffer("noise"):
            plans = (mean.unsqueeze(1) + std.unsqueeze(1) * noise).clamp(-1, 1)
            plans = torch.cat([mean.unsqueeze(1), plans[:, 1:]], 1)
            value = self.world.evaluate(start, plans.flatten(0, 1), self.gamma)
            mean, std = self.improve(plans, value.unflatten(0, (-1, self.samples)))
        return mean[:, 0].reshape(-1, *self.world.head.shape)

    def policy_plan(self, latent: Tensor) -> Tensor:
        """Return the policy's best actions [N, H, dims] along the predicted latents."""
        actions = []
        for _ in range(self.horizon):
            actions.append(self.world.best(latent))
            latent = self.world.step(latent, actions[-1])
        return torch.stack(actions, 1)

    def improve(self, plans: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation [N, H, dims] of the best of S plans [N, S, H, dims] with returns [N, S]."""
        best, place = value.topk(max(1, int(self.samples * ELITES)), 1)
        weight = (TEMPERATURE * best).softmax(1)[:, :, None, None]
        elites = plans.gather(1, place[:, :, None, None].expand(-1, -1, *plans.shape[2:]))
        mean = (weight * elites).sum(1)
        variance = (weight * (elites - mean.unsqueeze(1)).square()).sum(1)
        return mean, variance.sqrt().clamp(*STD)


class WorldAgent(rl.NetworkAgent):
    """Samples from the policy or around a plan, uniformly for the first `warmup` env steps; else takes the best."""

    def __init__(self, planner: Planner, seeds: rl.Seeds, backend: str, warmup: int) -> None:
        super().__init__(planner.world, seeds, backend)
        self.planner = planner
        self.head = planner.world.head
        self.warmup = warmup
        self.plan = rl.fast_forward(planner, backend)

    def noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> rl.Array:
        """Draw uniform actions and standard normal numbers, [draws, N, 2, dims]."""
        uniform = 2 * generator.random((*shape, self.head.dims), np.float32) - 1
        normal = generator.standard_normal(uniform.shape, np.float32)
        # An environment on a device gives the agent a generator of tensors.
        stack = torch.stack if isinstance(uniform, Tensor) else np.stack
        both: rl.Array = stack([uniform, normal], 2)
        return both

    def act(
        self,
        obs: rl.Obs,
        is_first: rl.Array,
        recurrent_state: rl.RecurrentState,
        clock: rl.Clock,
        explore: bool = True,
    ) -> rl.Act:
        if not explore or self.draws is None:
            return rl.Act(self.plan(obs))
        action, normal = self.draws.next(len(is_first)).swapaxes(0, 1)
        if clock.steps >= self.warmup and self.planner.samples:
            plan = self.plan(obs).reshape(normal.shape)
            action = (plan + EXPLORATION * normal).clip(-1, 1)
        elif clock.steps >= self.warmup:
            action = self.head.sample(self.forward(obs), normal)
        return rl.Act(action.reshape(-1, *self.head.shape))

    def exported(self) -> nn.Module:
        return self.planner
