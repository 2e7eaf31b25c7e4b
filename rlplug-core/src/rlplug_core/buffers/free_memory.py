"""The free memory of the host or a device, so that a buffer that is too large is refused early."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from rlplug_core.errors import UsageError

#: The file with the memory that programs can get without swapping, on Linux.
MEMINFO = Path("/proc/meminfo")


def physical() -> int:
    """Return the bytes of memory of this machine; if unknown, as on Windows, more than any machine has."""
    if not hasattr(os, "sysconf"):
        return 2**63
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_bytes(device: torch.device) -> int:
    """Return the bytes that can be allocated on a device; on the CPU of systems other than Linux, all memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + unused
    if not MEMINFO.exists():
        return physical()
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def check_free(
    size: int,
    device: torch.device,
    option: str,
    what: str,
) -> None:
    """Refuse to allocate more than is free.

    Args:
        size: bytes.
        device: their device.
        option: the option that reduces them.
        what: the object in words, such as `a replay buffer of 50,000 steps`.

    Raises:
        UsageError: they do not fit; the message names the option, the size, and the free memory.
    """
    free = free_bytes(device)
    if size > free:
        raise UsageError(
            f"option '{option}': {what} would take {size_text(size)} on {device}, and {size_text(free)} are free; "
            "choose a smaller one"
        )


def size_text(size: int) -> str:
    """Return a size as people write it: `728 TiB`."""
    value = float(size)
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            break
        value /= 1024
    return f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
