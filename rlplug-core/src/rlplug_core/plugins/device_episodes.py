"""Episodes that ended on a device, and are read back together when a record is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import torch
from torch import Tensor

from rlplug_core.arrays import to_host
from rlplug_core.errors import BadEnv
from rlplug_core.types import Episode


class EndedRows(Sequence[Episode]):
    """The episodes that ended in one step of an environment on a device.

    Every operation except the construction waits for the device; `read` reads many at once.

    Attributes:
        ended: [N] whether the row's episode has ended.
        totals, lengths: [N] returns and lengths of the episodes so far.
        success: [N] whether an episode succeeded; None if the environment does not report it.
        probe: [] 0 if all observations and rewards so far were finite, else NaN.
        id: the environment's name in messages.
    """

    __slots__ = ("ended", "id", "lengths", "probe", "success", "totals")

    def __init__(
        self,
        ended: Tensor,
        totals: Tensor,
        lengths: Tensor,
        success: Tensor | None,
        probe: Tensor,
        id: str,
    ) -> None:
        self.ended = ended
        self.totals = totals
        self.lengths = lengths
        self.success = success
        self.probe = probe
        self.id = id

    def __bool__(self) -> bool:
        """Return True without waiting for the device."""
        return True

    def __len__(self) -> int:
        return int(self.ended.sum())

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | Sequence[Episode]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Episode]:
        return (episode for _, episode in read([(0, self)]))


def read(steps: Sequence[tuple[int, EndedRows]]) -> list[tuple[int, Episode]]:
    """Return the episodes of many steps, each with the clock's steps at its end; one wait for the device.

    Raises:
        BadEnv: an observation or a reward was NaN or infinite.
    """
    if not steps:
        return []
    ended_rows = [rows for _, rows in steps]
    positions = torch.stack([rows.ended for rows in ended_rows]).nonzero()
    index = (positions[:, 0], positions[:, 1])
    totals = torch.stack([rows.totals for rows in ended_rows])[index]
    lengths = torch.stack([rows.lengths for rows in ended_rows])[index]
    columns = [to_host(column).tolist() for column in (*index, totals, lengths)]
    reported = [rows.success for rows in ended_rows if rows.success is not None]
    successes = [None] * len(columns[0])
    if len(reported) == len(ended_rows):
        successes = to_host(torch.stack(reported)[index]).tolist()
    _check(ended_rows[-1])
    return [
        (steps[step][0], Episode(row, total, length, success))
        for step, row, total, length, success in zip(*columns, successes, strict=True)
    ]


def _check(last: EndedRows) -> None:
    if not torch.isfinite(last.probe):
        raise BadEnv(
            f"{last.id}: since the last log record an observation or a reward was not finite, or info had no "
            "'final_obs' in a step that ended an episode; the environment has to return finite numbers and, if it "
            "resets rows in the same step, their last observations"
        )
