"""Agents that act by Q-values and explore: epsilon-greedy, Boltzmann, noisy weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.acting.policy_agent import NetworkAgent
from rlplug_core.arrays import Either, cast, namespace
from rlplug_core.batches import rows_of
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Schedule, constant, throughout
from rlplug_core.nets.forward import TorchForward
from rlplug_core.nets.heads import ILLEGAL
from rlplug_core.seeds import Seeds
from rlplug_core.types import MASK, NO_EXTRAS, Act, Array, Obs, RecurrentState, State

#: A tensor or an array.
T = TypeVar("T")


class EpsilonGreedy(NetworkAgent):
    """Takes the action of highest value, or with probability epsilon a random legal one.

    Args:
        epsilon: a schedule of progress.
        warmup: number of env steps at the start with only random actions.
        evaluation: epsilon in evaluations.
    """

    def __init__(
        self,
        network: nn.Module,
        epsilon: Schedule,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
        evaluation: float = 0.0,
    ) -> None:
        self.epsilon = epsilon
        self.warmup = warmup
        self.evaluation = evaluation
        super().__init__(network, seeds, inference_backend)

    def noise(
        self,
        generator: np.random.Generator,
        shape: tuple[int, int],
    ) -> Array:
        return generator.random((*shape, 2), dtype=np.float32)

    def act(
        self,
        obs: Obs,
        is_first: Array,
        recurrent_state: RecurrentState,
        clock: Clock,
        explore: bool = True,
    ) -> Act:
        values = self.values(obs) if explore and self.draws is not None else self.forward(obs)
        return Act(self.select(obs, values, clock, explore), None, NO_EXTRAS)

    def select(
        self,
        obs: Obs,
        values: Array,
        clock: Clock,
        explore: bool,
    ) -> Array:
        """Choose actions by their values, or with the current epsilon random legal ones.

        Args:
            obs: [N, ...] observations, which may have an action mask.
            values: [N, A] action values; those of illegal actions are `ILLEGAL`.
            clock: for schedules.
            explore: False for the epsilon of evaluations.

        Returns:
            Actions [N].
        """
        if self.draws is None or not (explore or self.evaluation):
            return values.argmax(-1)
        noise = self.draws.next(len(values))
        action = self.choose(values, noise[:, 1], clock) if explore else values.argmax(-1)
        exploring = noise[:, 0] < (self.chance(clock) if explore else self.evaluation)
        # Tensors take this path always: a test would wait for the device. For arrays `any` takes four times as long.
        if isinstance(values, Tensor) or np.count_nonzero(exploring):
            legal = self.any_legal(obs, noise[:, 1], values.shape[1])
            action = namespace(values).where(exploring, legal, action)
        return action

    def chance(self, clock: Clock) -> float:
        """Return the probability of a random action."""
        return 1.0 if clock.steps < self.warmup else self.epsilon(clock.progress)

    def values(self, obs: Obs) -> Array:
        """Compute the action values that choose actions during exploration.

        Args:
            obs: [N, ...] observations.

        Returns:
            Action values [N, A]; those of illegal actions are `ILLEGAL`.
        """
        return self.forward(obs)

    def weight_noise(self) -> Array | None:
        """Draw noise [size] for the network's weights; None for their means."""
        return None

    def choose(self, values: Array, uniform: Array, clock: Clock) -> Array:
        """Choose the actions of the rows that do not get a random action.

        Args:
            values: [N, A] action values.
            uniform: [N] random numbers in [0, 1) for the choice.
            clock: for schedules.

        Returns:
            Actions [N].
        """
        return values.argmax(-1)

    def expected(self, values: Array, by: Array, clock: Clock) -> Array:
        """Compute the mean of `values` over the actions that the agent would take.

        Args:
            values: [N, A] action values to be averaged.
            by: [N, A] action values for the agent's choice.
            clock: for schedules.

        Returns:
            Means [N].
        """
        chance = self.chance(clock)
        legal = values > ILLEGAL
        mean = np.where(legal, values, 0).sum(-1) / np.maximum(legal.sum(-1), 1)
        return chance * mean + (1 - chance) * self.greedy_mean(values, by, clock)

    def greedy_mean(self, values: Array, by: Array, clock: Clock) -> Array:
        """Compute the mean of `values` over the actions that the agent would take with an epsilon of 0.

        Args:
            values, by, clock: as in `expected`.

        Returns:
            Means [N].
        """
        return of_action(values, by.argmax(-1))

    def any_legal(self, obs: Obs, uniform: Array, actions: int) -> Array:
        """Draw legal actions, all with the same probability.

        Args:
            obs: [N, ...] observations, which may have an action mask.
            uniform: [N] random numbers in [0, 1).
            actions: the number of actions.

        Returns:
            Actions [N].
        """
        if not (isinstance(obs, dict) and MASK in obs):
            return cast(uniform * actions, np.int64)
        legal = cast(obs[MASK], np.bool_).reshape(rows_of(obs), actions)
        rank = legal.cumsum(-1)
        above = rank > cast(uniform * rank[:, -1], np.int64)[:, None]
        return cast(above, np.int8).argmax(-1)


class Softmax(EpsilonGreedy):
    """Takes each action with a probability proportional to exp(value / temperature) (Boltzmann exploration).

    Args:
        temperature: a number, or a schedule of progress.
    """

    #: The lowest temperature of a schedule that ends at 0.
    COLDEST = 1e-8

    def __init__(
        self,
        network: nn.Module,
        temperature: Schedule | float,
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
        evaluation: float = 0.0,
    ) -> None:
        self.temperature = throughout(temperature)
        super().__init__(
            network,
            constant(0.0),
            seeds,
            inference_backend=inference_backend,
            warmup=warmup,
            evaluation=evaluation,
        )

    def choose(self, values: Array, uniform: Array, clock: Clock) -> Array:
        # In double precision, uniform * total is below total, so an action of probability 0 is never taken.
        total = self.odds(values, clock).cumsum(-1)
        above = total > uniform[:, None] * total[:, -1:]
        return cast(above, np.int8).argmax(-1)

    def greedy_mean(self, values: Array, by: Array, clock: Clock) -> Array:
        odds = self.odds(by, clock)
        return (odds * values).sum(-1) / odds.sum(-1)

    def odds(self, values: Array, clock: Clock) -> Array:
        """Compute unnormalized probabilities of actions.

        Args:
            values: [N, A] action values.
            clock: for the schedule of the temperature.

        Returns:
            Numbers [N, A] in [0, 1], float64; 0 for illegal actions.
        """
        temperature = max(self.temperature(clock.progress), self.COLDEST)
        shifted = cast(values - best_value(values)[:, None], np.float64) / temperature
        xp = namespace(values)
        return xp.where(values > ILLEGAL, xp.exp(shifted), 0.0)


class NoisyGreedy(EpsilonGreedy):
    """Takes the action of highest value under noise on the network's weights.

    The noise is drawn at every step, and is the same for all environments.

    Args:
        network: its second argument is the noise, a tensor.
        draw: draws noise.
    """

    def __init__(
        self,
        network: nn.Module,
        draw: Callable[[np.random.Generator], Array],
        seeds: Seeds,
        inference_backend: str = "auto",
        warmup: int = 0,
        evaluation: float = 0.0,
    ) -> None:
        super().__init__(
            network,
            constant(0.0),
            seeds,
            inference_backend=inference_backend,
            warmup=warmup,
            evaluation=evaluation,
        )
        self.draw = draw
        self.noisy = TorchForward(network)
        self.generator = seeds.child("weights").generator()

    def initial(self, num_envs: int) -> RecurrentState:
        self.generator = self.seeds.child("weights").generator()
        return super().initial(num_envs)

    def values(self, obs: Obs) -> Array:
        return self.noisy(obs, self.weight_noise())

    def weight_noise(self) -> Array:
        return self.draw(self.generator)

    def state_dict(self) -> State:
        return {**super().state_dict(), "generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.generator.bit_generator.state = state["generator"]


@overridable
def of_action(values: T, action: Any) -> T:
    """Take the values of the actions that were chosen.

    Args:
        values: [B, A] action values, as a tensor or an array.
        action: [B] their numbers.

    Returns:
        Values [B], a tensor or an array like `values`.
    """
    taken: Any
    if isinstance(values, Tensor):
        taken = values.gather(1, action.unsqueeze(1)).squeeze(1)
    else:
        taken = np.take_along_axis(np.asarray(values), action[:, None], -1)[:, 0]
    return taken


def best_value(values: T) -> T:
    """Take the values of the best actions.

    Args:
        values: [B, A] action values, as a tensor or an array.

    Returns:
        Values [B], a tensor or an array like `values`.
    """
    best: Either = values
    if isinstance(values, Tensor):
        return best.amax(-1)
    return best.max(-1)
