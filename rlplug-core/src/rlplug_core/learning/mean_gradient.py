"""The mean of gradients over several learners, by `torch.distributed`; `Optimizer.minimize` calls it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rlplug_core.errors import RlplugError

#: The network interface between learners of one machine; without it gloo listens at the address of the host's name.
LOOPBACK = {
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}


#: A learner waits for the others in this number of intervals. While its process is suspended, only one interval passes.
INTERVALS = 10
#: The timeout of the group itself, too long to be reached: its clock also runs while processes are suspended.
ENDLESS = timedelta(days=365)


class LearnerLost(RlplugError):
    """The learners of a run do not match: one of them has ended, or takes another number of gradient steps."""


class MeanGradient:
    """Averages gradients over `ranks` learners on this machine; each calls `join` before the first gradient step.

    Every learner gets the same bits, so equal learners stay equal. The group is separate from the default one of the
    process, which belongs to the caller.
    """

    #: From `torch.distributed`; its stubs do not know that each kind of group has `allreduce`.
    group: Any

    def __init__(
        self,
        rank: int,
        ranks: int,
        device: torch.device,
        timeout: float,
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        self.device = device
        self.timeout = timedelta(seconds=timeout)
        self.interval = self.timeout / INTERVALS

    def join(self, file: Path) -> None:
        """Join the other processes, which pass the same new `file`.

        Raises:
            LearnerLost: the others do not join within the timeout.
        """
        with _use_loopback(), _explain_errors():
            store = dist.FileStore(str(file), self.ranks)  # type: ignore[attr-defined]  # documented, not in __all__
            store.set_timeout(self.timeout)
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
                self.group = dist.ProcessGroupNCCL(
                    store, self.rank, self.ranks, dist.ProcessGroupNCCL.Options()
                )
            else:
                self.group = dist.ProcessGroupGloo(store, self.rank, self.ranks, ENDLESS)

    def __call__(self, gradient: Tensor) -> None:
        """Replace a flat gradient [n] by its mean over all learners; all make the same number of calls."""
        with _explain_errors():
            work = self.group.allreduce([gradient])
            if self.device.type == "cuda":
                work.wait()
            else:
                self._wait(work)
        gradient.div_(self.ranks)

    def _wait(self, work: Any) -> None:
        """Wait for the others in short intervals; one that is long because this process was suspended counts once.

        Raises:
            RuntimeError: they do not come within the timeout, or one of them is gone.
        """
        intervals = 0
        while not work.is_completed() and intervals < INTERVALS:
            intervals += 1
            # `wait` raises after an interval without a result; the work itself continues.
            with suppress(RuntimeError):
                work.wait(self.interval)
        work.wait(self.interval)


@contextmanager
def _use_loopback() -> Iterator[None]:
    """Use the loopback interface, unless the environment names another one."""
    added = [name for name in LOOPBACK if name not in os.environ]
    os.environ.update({name: LOOPBACK[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Replace errors of torch.distributed about lost or late learners by one sentence: they contain C++ details."""
    try:
        yield
    except RuntimeError as error:
        raise LearnerLost(
            "a learner waited too long for the others: they take different numbers of gradient steps, or one hangs"
        ) from error
