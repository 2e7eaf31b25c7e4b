"""`HostReads` counts the calls that wait for a device; it also works on the CPU, which never waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from rlplug_core.accelerator import Function

#: Methods of a tensor that copy it to the host.
COPIES = (
    "cpu",
    "numpy",
    "tolist",
    "item",
    "__array__",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
)
#: Operations that need the size or the value of their result on the host.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique")


class HostReads:
    """A context that counts the reads that would wait for a GPU: `with HostReads() as reads: …; reads.counts`.

    Attributes:
        counts: how often each method or operation was called.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> HostReads:
        self._stack = ExitStack()
        self._stack.enter_context(_Methods(self.counts))
        self._stack.enter_context(_Operations(self.counts))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


class _Methods(TorchFunctionMode):
    """Counts calls of the methods in `COPIES`."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(
        self,
        func: Function,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = getattr(func, "__name__", "")
        if name in COPIES and resolve_name(func) == f"torch.Tensor.{name}":
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    """Counts the operations in `WAITS`, and indices that are masks."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = counts

    def __torch_dispatch__(
        self,
        func: Function,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = getattr(func, "overloadpacket", func).__name__.rpartition(".")[2]
        if name in WAITS or (name.startswith("index") and _has_mask(args)):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def _has_mask(args: Sequence[object]) -> bool:
    """Return whether an index is a mask: only the device knows its number of rows."""
    indices = args[1] if len(args) > 1 else ()
    if not isinstance(indices, list | tuple):
        return False
    return any(isinstance(index, Tensor) and index.dtype is torch.bool for index in indices)
