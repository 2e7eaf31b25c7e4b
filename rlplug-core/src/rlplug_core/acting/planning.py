"""Planning in a learned model of latent states, and an agent that plans."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.acting.policy_agent import NetworkAgent
from rlplug_core.arrays import namespace
from rlplug_core.clock import Clock
from rlplug_core.nets.forward import fast_forward
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Array, Obs, RecurrentState

#: Number of iterations that improve the plans.
ITERATIONS = 3
#: Share of the plans that the next iteration learns from.
ELITES = 1 / 8
#: Weight of a difference between two returns.
TEMPERATURE = 0.5
#: Smallest and largest deviation of planned actions.
STD = (0.05, 0.5)
#: Deviation of an exploring agent's actions from its plan.
EXPLORATION = 0.1


class WorldModel(Protocol):
    """The methods that plans need, of a module that also maps observations to the outputs of a policy.

    `head` is the policy's, such as `SquashedGaussian`. Actions [B, dims] are in [-1, 1].
    """

    head: Any

    def encode(self, obs: Obs) -> Tensor:
        """Compute latents.

        Args:
            obs: [B, ...] observations.

        Returns:
            Latents [B, L].
        """

    def best(self, latent: Tensor) -> Tensor:
        """Compute the policy's best actions, without noise.

        Args:
            latent: [B, L].

        Returns:
            Actions [B, dims].
        """

    def step(self, latent: Tensor, action: Tensor) -> Tensor:
        """Predict the next latents.

        Args:
            latent: [B, L].
            action: [B, dims].

        Returns:
            Latents [B, L].
        """

    def reward_and_continuation(
        self,
        latent: Tensor,
        action: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Predict rewards and whether episodes continue.

        Args:
            latent: [B, L].
            action: [B, dims].

        Returns:
            Rewards [B], and probabilities [B] that the episode continues.
        """

    def value(self, latent: Tensor) -> Tensor:
        """Predict the values of latents.

        Args:
            latent: [B, L].

        Returns:
            Values [B].
        """


def plan_returns(
    model: WorldModel,
    latent: Tensor,
    plan: Tensor,
    gamma: float,
) -> Tensor:
    """Predict the returns of plans, which the policy continues.

    Args:
        model: the model.
        latent: [B, L] where they start.
        plan: [B, H, dims] actions.
        gamma: discount per step.

    Returns:
        Returns [B] of H predicted rewards and the value after them.
    """
    total = torch.zeros_like(latent[:, 0])
    discount = torch.ones_like(total)
    for action in plan.unbind(1):
        reward, continuation = model.reward_and_continuation(latent, action)
        total = total + discount * reward
        discount = discount * gamma * continuation
        latent = model.step(latent, action)
    return total + discount * model.value(latent)


class Planner(nn.Module):
    """Model predictive path integral control (Williams et al., 2015, arXiv:1509.01149) in a learned model.

    Plans start from the policy's actions. Every plan has the same noise, so an observation always has the same plan.

    Args:
        model: a module with the methods of `WorldModel`.
        samples: plans in each iteration; 0: the policy's actions.
        horizon: actions in a plan.
        gamma: discount per step.
    """

    def __init__(
        self,
        model: Any,
        samples: int,
        horizon: int,
        gamma: float,
    ) -> None:
        super().__init__()
        self.model = model
        self.samples = samples
        self.horizon = horizon if samples else 1
        self.gamma = gamma
        shape = (ITERATIONS if samples else 0, samples, horizon, model.head.dims)
        noise = np.random.default_rng(0).standard_normal(shape, np.float32)
        device = next(model.parameters()).device
        self.register_buffer("noise", torch.from_numpy(noise).to(device))

    def forward(self, obs: Obs) -> Tensor:
        """Improve the plan that the policy makes.

        Args:
            obs: [N, ...] observations.

        Returns:
            The first action of the plan, [N, ...].
        """
        latent = self.model.encode(obs)
        mean = self._policy_plan(latent)
        std = torch.full_like(mean, STD[1])
        start = latent.unsqueeze(1).expand(-1, self.samples, -1).flatten(0, 1)
        for noise in self.get_buffer("noise"):
            plans = (mean.unsqueeze(1) + std.unsqueeze(1) * noise).clamp(-1, 1)
            plans = torch.cat([mean.unsqueeze(1), plans[:, 1:]], 1)
            value = plan_returns(self.model, start, plans.flatten(0, 1), self.gamma)
            mean, std = self._improve(plans, value.unflatten(0, (-1, self.samples)))
        return mean[:, 0].reshape(-1, *self.model.head.shape)

    def _policy_plan(self, latent: Tensor) -> Tensor:
        """Return the policy's best actions [N, H, dims] along the predicted latents."""
        actions = []
        for _ in range(self.horizon):
            actions.append(self.model.best(latent))
            latent = self.model.step(latent, actions[-1])
        return torch.stack(actions, 1)

    def _improve(self, plans: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation [N, H, dims] of the best of S plans [N, S, H, dims] with returns [N, S]."""
        best, place = value.topk(max(1, int(self.samples * ELITES)), 1)
        weight = (TEMPERATURE * best).softmax(1)[:, :, None, None]
        elites = plans.gather(1, place[:, :, None, None].expand(-1, -1, *plans.shape[2:]))
        mean = (weight * elites).sum(1)
        variance = (weight * (elites - mean.unsqueeze(1)).square()).sum(1)
        return mean, variance.sqrt().clamp(*STD)


class PlanningAgent(NetworkAgent):
    """Acts around its plans, or samples from the policy without plans; uniformly for the first `warmup` env steps.

    When it does not explore, it takes the best action of the plan or the policy. It has no state, and an export
    contains the planner.
    """

    def __init__(
        self,
        planner: Planner,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
    ) -> None:
        super().__init__(planner.model, seeds, inference_backend)
        self.planner = planner
        self.head = planner.model.head
        self.warmup = warmup
        self.plan = fast_forward(planner, inference_backend)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, int],
    ) -> Array:
        """Draw uniform actions and standard normal numbers, [draws, N, 2, dims]."""
        uniform = 2 * generator.random((*shape, self.head.dims), np.float32) - 1
        normal = generator.standard_normal(uniform.shape, np.float32)
        return namespace(uniform).stack([uniform, normal], 2)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        if not explore or self.draws is None:
            return Act(self.plan(obs))
        action, normal = self.draws.next(len(is_first)).swapaxes(0, 1)
        if clock.steps >= self.warmup and self.planner.samples:
            plan = self.plan(obs).reshape(normal.shape)
            action = (plan + EXPLORATION * normal).clip(-1, 1)
        elif clock.steps >= self.warmup:
            action = self.head.sample(self.forward(obs), normal)
        return Act(action.reshape(-1, *self.head.shape))

    def exported(self) -> nn.Module:
        """Return the planner, for exports."""
        return self.planner
