"""Networks of action values with a memory: single values, distributions on atoms, or quantiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from torch import Tensor

from rlplug_core.batches import Transitions
from rlplug_core.nets.distributional import ImplicitQ
from rlplug_core.nets.former_names import former_method
from rlplug_core.nets.heads import check_mask, masked
from rlplug_core.nets.memory_trunk import BURN_IN, MemoryTrunk
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import Noise
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.recurrent import Remembered, with_units
from rlplug_core.types import Obs, Spec

#: A kind of network of action values.
Q = TypeVar("Q", bound=QNetwork)


class RecurrentQ(MemoryTrunk):
    """Observations and a memory to action values [B, A], or to distributions of returns.

    The last hidden layer of `net` is after the memory, in two streams with `dueling`; the others are before it. Other
    arguments are as in `RecurrentPolicy`. Rows [T * B] of sequences are the B rows of the first step, then those of the
    second, and so on. The first `burn_in` steps of a sequence have no gradient. `make` makes the network after the
    memory from a spec and options of layers; the default is a `QNetwork`.
    """

    def __init__(
        self,
        spec: Spec,
        net: Net,
        memory: str,
        units: int | None = None,
        dueling: bool = False,
        burn_in: int = 0,
        make: Callable[[Spec, Net], QNetwork] | None = None,
    ) -> None:
        super().__init__(spec, net, with_units(memory, units), burn_in)
        check_mask(spec)
        net.check_gaussian(free=False)
        make = make or partial(QNetwork, dueling=dueling)
        self.q_network = make(self.spec, self.net)
        self.noisy = self.q_network.noisy

    @property
    def support(self) -> Tensor:
        """Return the atoms [atoms] of a `CategoricalQ`."""
        return self.q_network.get_buffer("support")

    @property
    def middles(self) -> Tensor:
        """Return the quantile fractions [K] of a `QuantileQ` or an `ImplicitQ`."""
        return self.q_network.get_buffer("middles")

    def from_memory(
        self,
        memory: Remembered,
        obs: Obs,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Compute action values from the memory.

        Args:
            memory: [B, units] each, after `obs`.
            obs: [B, ...] observations, which may carry an action mask.
            noise: [size] of noisy layers; None for their mean weights.

        Returns:
            Action values [B, A]; those of illegal actions are `ILLEGAL`.
        """
        return masked(self.expected(self.q_network.distribution(memory["h"], noise)), obs)

    on = former_method("on", "from_memory")

    def noise(
        self,
        generator: np.random.Generator,
        uses: int,
    ) -> list[Tensor] | list[None]:
        """Draw noise for each of `uses` forward passes; None for each if no layer is noisy."""
        return self.q_network.noise(generator, uses)

    def at_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute the distributions of returns at each step of sequences.

        Args:
            batch: B sequences of T steps, as in `along`.
            noise: [size] of noisy layers; None for their mean weights.
            shares: [T * B, K] for an `ImplicitQ`.

        Returns:
            The numbers [T * B, A, atoms] that describe them.
        """
        return self._distribution(self.along(batch, self.burn_in), noise, shares)

    of_steps = former_method("of_steps", "at_steps")

    def after_steps(
        self,
        batch: Transitions,
        noise: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute the distributions of returns at the end of each step's n-step window.

        Args:
            batch, noise, shares: as of `at_steps`.

        Returns:
            The numbers [T * B, A, atoms] that describe them.
        """
        return self._distribution(self.following(batch, self.along(batch, 0)), noise, shares)

    def _distribution(
        self,
        memory: Remembered,
        noise: Tensor | None,
        shares: Tensor | None,
    ) -> Tensor:
        if shares is None:
            return self.q_network.distribution(memory["h"], noise)
        assert isinstance(self.q_network, ImplicitQ)
        return self.q_network.distribution(memory["h"], noise, shares)

    def expected(self, distribution: Tensor) -> Tensor:
        """Compute the means of distributions.

        Args:
            distribution: [T * B, A, atoms] of `at_steps` or `after_steps`.

        Returns:
            Action values [T * B, A].
        """
        return self.q_network.expected(distribution)

    def after(self, batch: Transitions, memory: Remembered) -> Tensor:
        """Return the action values [T * B, A] at the end of each step's n-step window.

        Args:
            batch: as in `along`.
            memory: the result of `along`.
        """
        return self.from_memory(self.following(batch, memory), batch.next_obs)


def q_network(
    spec: Spec,
    net: Net,
    memory: str | None = None,
    burn_in: int | None = None,
    *,
    dueling: bool = False,
    noisy: Noise | None = None,
    sigma: float | None = None,
    make: Callable[..., Q] = QNetwork,  # type: ignore[assignment]  # the default of Q
) -> Q | RecurrentQ:
    """Make a network of action values, with a memory if `memory` is given.

    Args:
        spec: of the environment.
        net: options of the layers.
        memory: the name and options of a memory, such as `gru:units=128`; None: no memory.
        burn_in: the number of first steps of a sequence without a gradient; None: `BURN_IN`.
        dueling: separate streams for state value and advantages.
        noisy, sigma: kind and initial size of the noise on the last layers.
        make: the kind of network, such as `partial(CategoricalQ, low=-10, high=10, atoms=51)`.
    """
    make_network = partial(make, dueling=dueling, noisy=noisy, sigma=sigma)
    if memory is None:
        return make_network(spec, net)
    steps = BURN_IN if burn_in is None else burn_in
    return RecurrentQ(spec, net, memory, burn_in=steps, make=make_network)
