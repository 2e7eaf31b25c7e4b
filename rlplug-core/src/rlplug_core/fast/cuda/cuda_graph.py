"""`Recorded`: kernels that a GPU starts together, as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from rlplug_core.errors import PluginError

T = TypeVar("T")
#: How often something is done before it is recorded: libraries and compilers get ready for it.
WARM = 3


@cache
def stream(device: torch.device) -> Any:
    """Return the stream on which the graphs of a device are recorded: libraries keep memory for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def beside(device: torch.device) -> Iterator[None]:
    """Run kernels where graphs are recorded: after all that was started before, and before all that is started later.

    Where a parameter's gradient is added up belongs to the stream on which the parameter was used, for as long as
    somebody keeps what came of it, and kernels of a graph must not wait for another stream. So what may be recorded
    later runs there, too.
    """
    if device.type != "cuda":
        yield
        return
    usual = torch.cuda.current_stream(device)
    own = stream(device)
    own.wait_stream(usual)
    with torch.cuda.stream(own):
        yield
    usual.wait_stream(own)


class Recorded(Generic[T]):
    """Kernels that start together, on the memory that they had when they were recorded; recording runs none of them.

    Args:
        body: starts the kernels; what it returns is right once they have run.
        device: the GPU.
        pool: where they have their memory: that of others, which always run before.

    Raises:
        PluginError: `body` does what no graph can hold, such as reading a number on the host.
    """

    def __init__(self, body: Callable[[], T], device: torch.device, pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph, pool=pool, stream=stream(device)):
                self.result = body()
        except RuntimeError as error:
            why = error.__context__ or error  # what ends the recording complains, too
            raise PluginError(
                f"--cudagraphs cannot record this algorithm ({str(why).splitlines()[0]}); leave --cudagraphs out"
            ) from error

    @property
    def pool(self) -> Any:
        """Return the memory of its kernels, for others that always run after it."""
        return self.graph.pool()

    def replay(self) -> T:
        """Run the kernels; return what `body` did, which the next replay overwrites."""
        self.graph.replay()
        return self.result
