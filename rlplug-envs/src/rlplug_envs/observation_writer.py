"""Writes the observations of a vector environment, with action masks, into the arrays of an adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlplug_core.errors import BadEnv
from rlplug_core.types import MASK, Array, GymEnv, Obs, Spec, align_mask
from rlplug_envs.observation_dtypes import ERRORS, DtypeMismatch, arrays, find_mismatch
from rlplug_envs.spaces import View, merge, missing_mask_error, put, write
from rlplug_envs.watch import check_counted


class ObservationWriter:
    """Writes observations and masks; errors name the row and the step.

    Args:
        view: how the spaces of the environment map to those of the interface.
        spec: the spec of the adapter.
        describe_step: returns the text that names a row and its step.
    """

    def __init__(
        self,
        view: View,
        spec: Spec,
        describe_step: Callable[[int], str],
    ) -> None:
        self.view = view
        self.spec = spec
        self.describe_step = describe_step
        self.all_rows = np.ones(spec.num_envs, np.bool_)

    def write(
        self,
        obs: Obs,
        value: Any,
        info: object,
        maskless: Array,
    ) -> None:
        """Write the observations of a call; the rows in `maskless` [N] need no action mask."""
        body = self.view.body(obs)
        try:
            write(body, value)
        except ERRORS:
            mismatch = find_mismatch(body, value, batched=True)
            if mismatch:
                raise self._mismatch_error(mismatch, np.arange(self.spec.num_envs)) from None
            raise
        if self.view.masked:
            obs[MASK][...] = self._mask(info, maskless)

    def write_successors(
        self,
        final_obs: Obs,
        ended: Array,
        info: Any,
    ) -> None:
        """Write the final observations in `info`, of the rows that ended, into `final_obs`."""
        if "final_obs" not in info:
            raise BadEnv(
                f"{self.spec.id}: its mode is SAME_STEP, but info has no 'final_obs' after an episode ended"
            )
        body = self.view.body(final_obs)
        successors = info["final_obs"]
        if isinstance(successors, list) or (
            isinstance(successors, np.ndarray) and successors.dtype == object
        ):
            for row in np.flatnonzero(ended).tolist():
                put(body, row, successors[row], self.describe_step)
        else:
            try:
                merge(body, ended, successors)
            except DtypeMismatch as error:
                raise self._mismatch_error(error, np.flatnonzero(ended)) from None
        check_counted(self.describe_step, self.spec.obs, final_obs)
        if self.view.masked:
            masks = np.broadcast_to(
                self._mask(info.get("final_info", {}), self.all_rows), final_obs[MASK].shape
            )
            merge(final_obs[MASK], ended, masks)

    def _mask(self, info: Any, maskless: Array) -> Any:
        """Return the action masks; rows without one, which Gymnasium fills with zeros, allow every action."""
        mask = self.view.mask(info, bool(maskless.all()))
        rows = info.get(f"_{MASK}", self.all_rows)
        for row in np.flatnonzero(~rows & ~maskless).tolist():
            raise missing_mask_error(self.describe_step(row))
        return np.where(align_mask(rows, mask), mask, 1) if MASK in info else mask

    def _mismatch_error(self, mismatch: DtypeMismatch, rows: Array) -> BadEnv:
        """Return the error for observations that do not fit their dtype; `rows` are their row numbers."""
        where = self.describe_step(int(rows[mismatch.index[0]])) if mismatch.index else self.spec.id
        return BadEnv(f"{where}: {mismatch}")


def check_own_arrays(env: GymEnv, id: str) -> None:
    """Raise BadEnv if two resets return the same array, so that the second changes the result of the first."""
    first = env.reset(seed=0)[0]
    second = env.reset(seed=0)[0]
    pairs = zip(arrays(first), arrays(second), strict=False)
    if any(np.may_share_memory(before, after) for before, after in pairs):
        raise BadEnv(
            f"{id}: its environments write each observation into the same array, which a reset in the mode SAME_STEP "
            "changes before the last observation of an episode is read; return a copy, or use the mode NEXT_STEP"
        )
