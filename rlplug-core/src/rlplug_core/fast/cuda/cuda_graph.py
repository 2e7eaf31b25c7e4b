"""`CudaGraph`: kernels that a GPU starts together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from rlplug_core.errors import PluginError

T = TypeVar("T")
#: The number of calls before a recording: libraries and compilers prepare themselves during these calls.
WARM = 3


@cache
def stream(device: torch.device) -> Any:
    """Return the stream that records the graphs of a device: libraries keep memory for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def on_recording_stream(device: torch.device) -> Iterator[None]:
    """Run kernels on the stream of recordings, after all earlier kernels and before all later ones.

    As long as a result that was computed from a parameter exists, autograd adds up the parameter's gradient on the
    stream that first used it, and kernels of a graph must not wait for another stream. So calls that may be recorded
    later run there, too.
    """
    if device.type != "cuda":
        yield
        return
    current = torch.cuda.current_stream(device)
    recording = stream(device)
    recording.wait_stream(current)
    with torch.cuda.stream(recording):
        yield
    current.wait_stream(recording)


class CudaGraph(Generic[T]):
    """Kernels that start together, on the memory that they used when they were recorded; recording runs none of them.

    Args:
        body: starts the kernels; its result is valid after they have run.
        device: the GPU.
        pool: the memory pool of kernels that always run before these; both share it.

    Raises:
        PluginError: `body` does something that a graph cannot hold, such as reading a number on the host.
    """

    def __init__(
        self,
        body: Callable[[], T],
        device: torch.device,
        pool: Any = None,
    ) -> None:
        self.graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph, pool=pool, stream=stream(device)):
                self.result = body()
        except RuntimeError as error:
            cause = error.__context__ or error  # the end of the recording raises, too
            raise PluginError(
                f"--cudagraphs cannot record this algorithm ({str(cause).splitlines()[0]}); leave --cudagraphs out"
            ) from error

    @property
    def pool(self) -> Any:
        """Return the memory pool of its kernels, for kernels that always run after it."""
        return self.graph.pool()

    def replay(self) -> T:
        """Run the kernels; return the result of `body`, which the next replay overwrites."""
        self.graph.replay()
        return self.result
