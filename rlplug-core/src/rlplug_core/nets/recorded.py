"""`Recorded`: kernels that a GPU starts together, as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

from rlplug_core.errors import PluginError

T = TypeVar("T")
#: How often something is done before it is recorded: libraries and compilers get ready for it.
WARM = 3


class Beside:
    """A stream beside the usual one: kernels are recorded on it, and what prepares that runs there too.

    Where a parameter's gradient is added up belongs to the stream on which the parameter was used, for as long as
    somebody keeps what came of it. Kernels of a graph must not wait for another stream.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __reduce__(self) -> tuple[type[Beside], tuple[torch.device]]:
        return Beside, (self.device,)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Run kernels there: after all that was started before, and before all that is started later."""
        if self.stream is None:
            yield
            return
        usual = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(usual)
        with torch.cuda.stream(self.stream):
            yield
        usual.wait_stream(self.stream)


class Recorded(Generic[T]):
    """Kernels that start together, on the memory that they had when they were recorded; recording runs none of them.

    Args:
        body: starts the kernels; what it returns is right once they have run.
        beside: the stream on which they are recorded.
        pool: where they have their memory: that of others, which always run before.

    Raises:
        PluginError: `body` does what no graph can hold, such as reading a number on the host.
    """

    def __init__(self, body: Callable[[], T], beside: Beside, pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph, pool=pool, stream=beside.stream):
                self.result = body()
        except RuntimeError as error:
            raise PluginError(
                f"--cudagraphs cannot record this algorithm ({str(error).splitlines()[0]}); leave --cudagraphs out"
            ) from error

    @property
    def pool(self) -> Any:
        """Return the memory of its kernels, for others that always run after it."""
        return self.graph.pool()

    def replay(self) -> T:
        """Run the kernels; return what `body` did, which the next replay overwrites."""
        self.graph.replay()
        return self.result
