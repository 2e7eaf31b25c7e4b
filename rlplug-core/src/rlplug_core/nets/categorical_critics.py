"""Critics Q(s, a) of return distributions on fixed atoms (C51), for algorithms with continuous actions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlplug_core.nets.continuous import ActionCritics
from rlplug_core.nets.memory_trunk import Trunk
from rlplug_core.types import Obs


class CategoricalCritics(ActionCritics):
    """Critics that give logits of the returns in `support` [atoms] (Bellemare et al., 2017, arXiv:1707.06887).

    Args:
        make: makes an `ActionCritic` with atoms.
        count: number of critics.
        trunk: as in `ActionCritics`.
        bounds: the smallest and the largest return, the outer atoms.
    """

    support: Tensor

    def __init__(
        self,
        make: Callable[[], nn.Module],
        count: int,
        trunk: Trunk | None,
        bounds: tuple[float, float],
    ) -> None:
        super().__init__(make, count, trunk)
        assert self.atoms is not None
        self.register_buffer("support", torch.linspace(*bounds, self.atoms), persistent=False)

    def means(self, logits: Tensor) -> Tensor:
        """Compute the means of distributions.

        Args:
            logits: [..., atoms].

        Returns:
            Means [...].
        """
        return logits.softmax(-1) @ self.support

    def lowest(self, *inputs: Obs) -> Tensor:
        """Compute the lowest mean of all critics.

        Args:
            inputs: observations [B, ...] and canonical actions [B, ...].

        Returns:
            Values [B].
        """
        return self.means(self(*inputs)).amin(0)

    def lowest_distribution(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute the distribution of the critic with the lowest mean (Seo et al., 2025, arXiv:2505.22642).

        Args:
            obs: [B, ...] observations.
            action: [B, ...] canonical actions.

        Returns:
            Probabilities [B, atoms].
        """
        logits = self(obs, action)
        critic = self.means(logits).argmin(0)
        rows = torch.arange(logits.shape[1], device=logits.device)
        lowest: Tensor = logits[critic, rows]
        return lowest.softmax(-1)


def action_critics(
    make: Callable[[], nn.Module],
    count: int,
    trunk: Trunk | None = None,
    bounds: tuple[float, float] | None = None,
) -> ActionCritics:
    """Make critics: of distributions of returns within `bounds`, or of single values without bounds."""
    if bounds is None:
        return ActionCritics(make, count, trunk)
    return CategoricalCritics(make, count, trunk, bounds)


def check_atoms(v_min: float, v_max: float) -> None:
    """Raise ValueError if the smallest return is not below the largest."""
    if v_min >= v_max:
        raise ValueError(f"v_min must be below v_max, and {v_min} is not below {v_max}")
