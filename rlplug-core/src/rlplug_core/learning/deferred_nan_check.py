"""`DeferredNanCheck` checks the numbers of an update during the next one, so that nothing waits for a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

#: Raises `NonFinite` if a gradient's norm or its loss is not finite; the third argument names the optimizer.
Check: TypeAlias = Callable[[Tensor, Tensor, str], None]


class DeferredNanCheck:
    """Calls `check` one step later, or in `look`, which is called before the result of a step is saved.

    Args:
        check: checks a norm and a loss.
        when: the time of the step, as the start of a message.
    """

    def __init__(self, check: Check, when: str = "a step ago") -> None:
        self.check = check
        self.when = when
        self.sent: tuple[Tensor, torch.cuda.Event | None, str] | None = None

    def __call__(self, norm: Tensor, loss: Tensor, name: str) -> None:
        self.send(torch.stack([norm, loss.detach()]), name)

    def send(self, numbers: Tensor, name: str) -> None:
        """Check the numbers of the previous call, and start a copy of `numbers` [2], a norm and a loss, to the host."""
        self.look(self.when)
        self.sent = (*_copy_to_host(numbers), name)

    def look(self, when: str) -> None:
        """Wait for the last numbers and check them; `when` is the time of their step, for a message."""
        if self.sent is not None:
            numbers, arrived, name = self.sent
            if arrived is not None:
                arrived.synchronize()
            self.check(numbers[0], numbers[1], f"{when}, {name}")


def _copy_to_host(numbers: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start a copy of `numbers` to the host; return it and the event of its arrival, None if it has arrived."""
    if not numbers.is_cuda:
        return numbers.cpu(), None
    arrived = torch.cuda.Event()
    copy = torch.empty_like(numbers, device="cpu", pin_memory=True).copy_(
        numbers, non_blocking=True
    )
    arrived.record()
    return copy, arrived
