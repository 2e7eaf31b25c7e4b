"""`Recorded`: kernels that a GPU starts together, as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch

from rlplug_core.errors import PluginError

T = TypeVar("T")
#: Calls before a recording, while libraries and compilers prepare themselves.
WARM = 3


@cache
def stream(device: torch.device) -> Any:
    """Return the stream that records the graphs of a device: libraries keep memory for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def on_recording_stream(device: torch.device) -> Iterator[None]:
    """Run kernels on the stream of recordings: after all kernels before, and before all later ones.

    Autograd adds up a parameter's gradient on the stream that first used the parameter, as long as a result of it
    exists, and kernels of a graph must not wait for another stream. So calls that may be recorded later run there, too.
    """
    if device.type != "cuda":
        yield
        return
    usual = torch.cuda.current_stream(device)
    recording = stream(device)
    recording.wait_stream(usual)
    with torch.cuda.stream(recording):
        yield
    usual.wait_stream(recording)


class Recorded(Generic[T]):
    """Kernels that start together, on the memory that they had when they were recorded; recording runs none of them.

    Args:
        body: starts the kernels; its result is valid after they have run.
        device: the GPU.
        pool: the memory pool of kernels that always run before these, to be shared.

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
            why = error.__context__ or error  # the end of the recording raises, too
            raise PluginError(
                f"--cudagraphs cannot record this algorithm ({str(why).splitlines()[0]}); leave --cudagraphs out"
            ) from error

    @property
    def pool(self) -> Any:
        """Return the memory pool of its kernels, for kernels that always run after it."""
        return self.graph.pool()

    def replay(self) -> T:
        """Run the kernels; return the result of `body`, which the next replay overwrites."""
        self.graph.replay()
        return self.result
