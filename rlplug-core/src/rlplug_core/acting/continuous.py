"""Agents for continuous actions: random actions first, then samples from a policy, or its actions plus noise."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rlplug_core.acting.policy_agent import NetworkAgent
from rlplug_core.arrays import copy_of, namespace
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, throughout
from rlplug_core.nets.continuous import DeterministicPolicy
from rlplug_core.nets.many_agents import PerAgent
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.types import NO_EXTRAS, Act, Array, Obs, RecurrentState, State


class SampleAgent(NetworkAgent):
    """Samples actions of a Box from a policy; uniform for the first `warmup` env steps, the mode without `explore`."""

    def __init__(
        self,
        policy: PolicyNetwork,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
    ) -> None:
        self.head = policy.head
        self.warmup = warmup
        super().__init__(policy, seeds, inference_backend)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, int],
    ) -> Array:
        return gaussian_and_uniform(self.head.noise(generator, shape), generator)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        outputs = self.forward(obs)
        action = self.head.mode(outputs)
        if explore and self.draws is not None:
            gaussian, uniform = self.draws.next(len(outputs)).swapaxes(0, 1)
            warming_up = clock.steps < self.warmup
            action = (
                uniform.reshape(action.shape) if warming_up else self.head.sample(outputs, gaussian)
            )
        return Act(action, None, NO_EXTRAS)


class ActionNoise(Protocol):
    """Makes noise for actions from standard normal numbers [N, dims], episode starts [N] and progress."""

    def __call__(
        self,
        gaussian: Array,
        is_first: Array,
        progress: float,
    ) -> Array: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class GaussianNoise:
    """Noise that is independent at every step; its standard deviation `sigma` is a number or a function of progress.

    With `highest`, the deviations of the rows are evenly spaced from `sigma` to `highest`, so that some rows explore
    more (Seo et al., 2025, arXiv:2505.22642, draw them at random).
    """

    def __init__(
        self,
        sigma: Schedule | float,
        highest: Schedule | float | None = None,
    ) -> None:
        self.sigma = throughout(sigma)
        self.highest = None if highest is None else throughout(highest)

    def __call__(
        self,
        gaussian: Array,
        is_first: Array,
        progress: float,
    ) -> Array:
        sigma = np.float32(self.sigma(progress))
        if self.highest is None:
            return sigma * gaussian
        row = namespace(gaussian).ones_like(gaussian).cumsum(0) - 1
        spacing = np.float32((self.highest(progress) - sigma) / max(1, len(gaussian) - 1))
        return (sigma + spacing * row) * gaussian

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing; it has no state."""


class OrnsteinUhlenbeck:
    """Correlated noise: x' = x - theta x + sigma N(0, 1), starting at 0 in every episode (Lillicrap et al., 2016).

    `sigma` and `theta` are numbers or functions of progress.
    """

    def __init__(
        self,
        sigma: Schedule | float,
        theta: Schedule | float = 0.15,
    ) -> None:
        self.sigma = throughout(sigma)
        self.theta = throughout(theta)
        self.value: Array | None = None

    def __call__(
        self,
        gaussian: Array,
        is_first: Array,
        progress: float,
    ) -> Array:
        decay = np.float32(1 - self.theta(progress))
        sigma = np.float32(self.sigma(progress))
        xp = namespace(gaussian)
        before = xp.zeros_like(gaussian)
        # Another number of rows means other environments, so all start at 0.
        if self.value is not None and len(self.value) == len(gaussian):
            before = xp.where(is_first[:, None], before, self.value)
        self.value = decay * before + sigma * gaussian
        return self.value

    def state_dict(self) -> State:
        return {"value": None if self.value is None else copy_of(self.value)}

    def load_state_dict(self, state: State) -> None:
        self.value = state["value"]


def action_noise(
    kind: str,
    sigma: Schedule,
    theta: Schedule | None = None,
    highest: Schedule | None = None,
) -> ActionNoise:
    """Make noise that is added to actions.

    Args:
        kind: `gaussian` or `ornstein-uhlenbeck`.
        sigma: standard deviation of the noise.
        theta: the pull of Ornstein-Uhlenbeck noise towards 0; None: 0.15.
        highest: the deviation of Gaussian noise in the last row; None: `sigma` in all rows.

    Raises:
        ValueError: `kind` is another word.
    """
    if kind == "gaussian":
        return GaussianNoise(sigma, highest)
    if kind != "ornstein-uhlenbeck":
        raise ValueError(f"no noise is called '{kind}'; write gaussian or ornstein-uhlenbeck")
    return OrnsteinUhlenbeck(sigma) if theta is None else OrnsteinUhlenbeck(sigma, theta)


class NoiseAgent(NetworkAgent):
    """A deterministic policy's action plus noise, clipped to [-1, 1]; uniform for the first `warmup` env steps."""

    def __init__(
        self,
        policy: DeterministicPolicy | PerAgent,
        added: ActionNoise,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
    ) -> None:
        self.shape = policy.shape
        self.added = added
        self.warmup = warmup
        super().__init__(policy, seeds, inference_backend)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, int],
    ) -> Array:
        gaussian = generator.standard_normal((*shape, int(np.prod(self.shape))), dtype=np.float32)
        return gaussian_and_uniform(gaussian, generator)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        action = self.forward(obs)
        if explore and self.draws is not None:
            gaussian, uniform = self.draws.next(len(action)).swapaxes(0, 1)
            warming_up = clock.steps < self.warmup
            action = (
                uniform
                if warming_up
                else (action + self.added(gaussian, is_first, clock.progress)).clip(-1, 1)
            )
        return Act(action.reshape(-1, *self.shape), None, NO_EXTRAS)

    def state_dict(self) -> State:
        return {**super().state_dict(), "added": self.added.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.added.load_state_dict(state["added"])


def gaussian_and_uniform(
    gaussian: Array,
    generator: np.random.Generator,
) -> Array:
    """Return the numbers `gaussian` [..., dims] and as many uniform numbers in [-1, 1), as [..., 2, dims]."""
    uniform = 2 * generator.random(gaussian.shape, dtype=np.float32) - 1
    return namespace(gaussian).stack([gaussian, uniform], -2)
