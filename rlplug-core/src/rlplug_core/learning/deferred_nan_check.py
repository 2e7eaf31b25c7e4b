"""`DeferredNanCheck` checks the numbers of an update during the next one, so that nothing waits for a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

#: Raises `NonFinite` if a gradient's norm or its loss is not finite; the third argument is the optimizer's name.
Check: TypeAlias = Callable[[Tensor, Tensor, str], None]


class DeferredNanCheck:
    """Calls `check` one step later, or at `look`, which is called before the result of a step is saved."""

    def __init__(self, check: Check, ago: str = "a step ago") -> None:
        self.check = check
        self.ago = ago
        self.sent: tuple[Tensor, torch.cuda.Event | None, str] | None = None

    def __call__(self, norm: Tensor, loss: Tensor, name: str) -> None:
        self.send(torch.stack([norm, loss.detach()]), name)

    def send(self, numbers: Tensor, name: str) -> None:
        """Check a norm and a loss [2] at the next call, and now those of the previous call."""
        self.look(self.ago)
        self.sent = (*_send(numbers), name)

    def look(self, when: str) -> None:
        """Wait for the last numbers and check them; `when` is the start of a message."""
        if self.sent is not None:
            numbers, arrived, name = self.sent
            if arrived is not None:
                arrived.synchronize()
            self.check(numbers[0], numbers[1], f"{when}, {name}")


def _send(numbers: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start a copy of `numbers` to the host; return it with the event of its arrival, None if it is already there."""
    if not numbers.is_cuda:
        return numbers.cpu(), None
    arrived = torch.cuda.Event()
    copy = torch.empty_like(numbers, device="cpu", pin_memory=True).copy_(
        numbers, non_blocking=True
    )
    arrived.record()
    return copy, arrived
