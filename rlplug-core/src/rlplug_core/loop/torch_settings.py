"""The settings of a process that trains, in one place: its device, threads and denormal numbers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch

from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import UsageError
from rlplug_core.processor import cores

#: The values of options that ask for a GPU, on a machine without one.
WITHOUT_GPU = {
    "device": "cpu",
    "actor_device": "cpu",
    "buffer_storage": "memory",
    "cudagraphs": False,
}
#: `M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of glibc's `mallopt`, with our values; 32 MiB is the largest.
MALLOC_OPTIONS = {-1: 256 * 2**20, -3: 32 * 2**20}


def without_auto(options: RunOptions, runner: str) -> RunOptions:
    """Return the options with the device and the number of workers that `auto` means on this machine."""
    device = options.device
    if device == "auto":  # workers of `async` share parameters in host memory
        device = "cuda" if runner != "async" and torch.cuda.is_available() else "cpu"
    return replace(options, device=device, workers=options.workers or cores())


def usable_device(name: str, option: str) -> torch.device:
    """Return the device `name`, which `option` of the command line has named.

    Raises:
        UsageError: the device does not exist, or this torch cannot use it.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"no device '{name}'; use cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device 'cuda' is not available to this torch; use {option} cpu")
    if _is_missing_gpu(name):
        count = torch.cuda.device_count()
        raise UsageError(
            f"no device '{name}': torch finds {count} here, counted from 0; use {option} cuda:0"
        )
    return device


def on_this_machine(
    options: Mapping[str, object],
    say: Callable[[str], None],
) -> Mapping[str, object]:
    """Return the options of a run for this machine, which may have other GPUs than the run had."""
    gpu_options = [
        name
        for name in WITHOUT_GPU
        if options.get(name) is True or str(options.get(name)).startswith("cuda")
    ]
    no_gpu = not torch.cuda.is_available()
    replacements = {
        name: WITHOUT_GPU[name] if no_gpu else "cuda:0"
        for name in gpu_options
        if no_gpu or _is_missing_gpu(options[name])
    }
    if replacements:
        requested = " and ".join(f"{name} {options[name]}" for name in replacements)
        result = "no GPU here: the CPU computes" if no_gpu else "fewer GPUs here: cuda:0 computes"
        say(f"the run has {requested}, and torch finds {result} instead")
    return {**options, **replacements}


def _is_missing_gpu(name: object) -> bool:
    """Return whether `name` has the number of a GPU that this machine does not have; plain `cuda` has no number."""
    _, _, number = str(name).partition("cuda:")
    return number.isdigit() and int(number) >= torch.cuda.device_count()


def set_torch(threads: int) -> None:
    """Set torch's threads (one is fastest for small networks), flush denormal numbers to zero, and keep freed memory.

    Second moments of weights that never move decay into denormals, which are slow on the processor: Adam took two to
    three times as long on a DQN with dead units.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let each update reuse the memory of the last one's tensors instead of new pages, which the system clears first.

    Only glibc has this setting. It then returns less free memory to the system, so a process may keep its peak memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        for parameter, size in MALLOC_OPTIONS.items():
            mallopt(parameter, size)


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Use torch's own defaults in the block, even if the process has others.

    These are the default dtype and device, gradients, inference mode and autocast.
    """
    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":  # a mode that costs time in every call
            stack.enter_context(torch.device("cpu"))
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        yield


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """Call `set_torch`, and after the block restore the number of threads and torch's default for denormal numbers."""
    before = torch.get_num_threads()
    set_torch(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)
