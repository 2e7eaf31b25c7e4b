"""How a world model acts: by its policy, or by planning from the policy's actions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

import rlplug_core as rl
from rlplug_world.networks import World


@dataclass(frozen=True)
class Search:
    """Options of planning.

    Attributes:
        samples: plans that are compared in each iteration; 0: no planning.
        horizon: actions in a plan.
        iterations: how often the plans improve.
        gamma: discount per step.
    """

    samples: int
    horizon: int
    iterations: int
    gamma: float

    #: Share of the samples that the next iteration learns from.
    elites = 1 / 8
    #: Weight of a difference between two returns.
    temperature = 0.5
    #: Largest and smallest deviation of the actions.
    std = (0.5, 0.05)

    def draws(self, dims: int) -> int:
        """Return the number of random numbers for one row."""
        return self.iterations * self.samples * self.horizon * dims


class Planner(nn.Module):
    """Model predictive path integral control (Williams et al., 2015, arXiv:1509.01149) in the latent space."""

    def __init__(self, world: World, search: Search) -> None:
        super().__init__()
        self.world = world
        self.search = search

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Plan from observations `obs` [N, ...] with `noise` [N, draws]."""
        return self.plan(self.world.encoder(inputs["obs"]), inputs["noise"])

    def plan(self, latent: Tensor, noise: Tensor) -> Tensor:
        """Improve the plan that the policy makes.

        Args:
            latent: [N, L] where it starts.
            noise: [N, draws] standard normal.

        Returns:
            Mean and deviation of the first action, [N, 2 * dims].
        """
        search = self.search
        mean = self.policy_plan(latent)
        std = torch.full_like(mean, search.std[0])
        shape = (latent.shape[0], search.iterations, search.samples, *mean.shape[1:])
        start = latent.unsqueeze(1).expand(-1, search.samples, -1).flatten(0, 1)
        for step in noise.reshape(shape).unbind(1):
            plans = (mean.unsqueeze(1) + std.unsqueeze(1) * step).clamp(-1, 1)
            plans = torch.cat([mean.unsqueeze(1), plans[:, 1:]], 1)
            value = self.world.evaluate(start, plans.flatten(0, 1), search.gamma)
            mean, std = self.improve(plans, value.view(shape[0], -1))
        return torch.cat([mean[:, 0], std[:, 0]], 1)

    def policy_plan(self, latent: Tensor) -> Tensor:
        """Return the policy's best actions [N, H, dims] along the predicted latents."""
        actions = []
        for _ in range(self.search.horizon):
            actions.append(self.world.best(latent))
            latent = self.world.dynamics(latent, actions[-1])
        return torch.stack(actions, 1)

    def improve(self, plans: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation [N, H, dims] of the best of S plans [N, S, H, dims] with returns [N, S]."""
        search = self.search
        best, place = value.topk(max(1, int(search.samples * search.elites)), 1)
        weight = (search.temperature * best).softmax(1)[:, :, None, None]
        elites = plans.gather(1, place[:, :, None, None].expand(-1, -1, *plans.shape[2:]))
        mean = (weight * elites).sum(1)
        variance = (weight * (elites - mean.unsqueeze(1)).square()).sum(1)
        return mean, variance.sqrt().clamp(search.std[1], search.std[0])


class Best(nn.Module):
    """Observations [N, ...] to the best actions [N, ...]; plans use the same noise every time."""

    noise: Tensor

    def __init__(self, world: World, shape: tuple[int, ...], search: Search) -> None:
        super().__init__()
        self.shape = shape
        self.world = world
        self.planner = Planner(world, search) if search.samples else None
        noise = np.random.default_rng(0).standard_normal((1, search.draws(prod(shape))))
        self.register_buffer("noise", torch.from_numpy(noise.astype(np.float32)))
        self.to(next(world.parameters()).device)

    def forward(self, obs: rl.Obs) -> Tensor:
        latent = self.world.encoder(obs)
        if self.planner is None:
            return self.world.best(latent).reshape(-1, *self.shape)
        plan = self.planner.plan(latent, self.noise.expand(latent.shape[0], -1))
        return plan.chunk(2, 1)[0].reshape(-1, *self.shape)


class WorldAgent(rl.NetworkAgent):
    """Samples from the policy or around a plan, uniformly for the first `warmup` env steps; else acts as `Best`."""

    def __init__(
        self, world: World, seeds: rl.Seeds, backend: str, warmup: int, search: Search
    ) -> None:
        super().__init__(world, seeds, backend)
        assert isinstance(world.policy.head, rl.SquashedGaussian)
        self.head = world.policy.head
        self.shape = self.head.shape
        self.dims = self.head.dims
        self.warmup = warmup
        self.search = search
        self.module = Best(world, self.shape, search)
        self.best = rl.fast_forward(self.module, backend)
        self.plan = rl.fast_forward(Planner(world, search), backend)

    def noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> rl.Array:
        """Draw the noise of an action, a uniform action, and the noise of a plan, side by side."""
        uniform = 2 * generator.random((*shape, self.dims), dtype=np.float32) - 1
        count = self.dims + self.search.draws(self.dims)
        normal = generator.standard_normal((*shape, count), dtype=np.float32)
        return np.concatenate([uniform, normal], -1)

    def act(
        self,
        obs: rl.Obs,
        is_first: rl.Array,
        recurrent_state: rl.RecurrentState,
        clock: rl.Clock,
        explore: bool = True,
    ) -> rl.Act:
        if not explore or self.draws is None:
            return rl.Act(self.best(obs))
        drawn = self.draws.next(len(is_first))
        action = drawn[:, : self.dims]
        if clock.steps >= self.warmup:
            normal = drawn[:, self.dims : 2 * self.dims]
            action = self.sample(obs, normal, drawn[:, 2 * self.dims :])
        return rl.Act(action.reshape(-1, *self.shape))

    def sample(self, obs: rl.Obs, normal: rl.Array, plan_noise: rl.Array) -> rl.Array:
        """Return random actions [N, dims] from standard normal numbers [N, dims] and [N, draws]."""
        if not self.search.samples:
            return self.head.sample(self.forward(obs), normal)
        plan = self.plan({"obs": obs, "noise": plan_noise})
        action: rl.Array = (plan[:, : self.dims] + plan[:, self.dims :] * normal).clip(-1, 1)
        return action

    def exported(self) -> nn.Module:
        return self.module
