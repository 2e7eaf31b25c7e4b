"""Identify the processor, and choose the kernels of numpy's matrix products; needs only the standard library."""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from pathlib import Path

#: The environment variable with the kernels of OpenBLAS.
KERNELS = "OPENBLAS_CORETYPE"
#: The file with the description of the processors on Linux.
CPUINFO = Path("/proc/cpuinfo")
#: The first family of AMD processors with units of 512 bits for AVX-512. Family 25 computes it in two halves and is not
#: faster with it.
WIDE = 26


def processor() -> tuple[str, int]:
    """Return the processor's maker and family; "" and 0 if they are unknown."""
    info = read_cpuinfo()
    if info:
        return info.get("vendor_id", ""), int(info.get("cpu family", 0))
    name = platform.processor()  # on Windows it ends with the maker
    family = re.search(r"Family (\d+)", name)
    maker = name.split(",")[-1].strip()
    return maker, int(family[1]) if family else 0


def has(instructions: str) -> bool:
    """Return whether the processor has these instructions, such as `avx512_bf16`."""
    return instructions in read_cpuinfo().get("flags", "").split()


def configure_openblas() -> None:
    """Let OpenBLAS, which multiplies numpy's arrays, use one thread and its fastest kernels, unless the user set them.

    OpenBLAS reads the settings once, when numpy is imported. On more threads small products take ten times as long.
    """
    if "numpy" in sys.modules:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    fastest = kernels()
    if fastest:
        os.environ.setdefault(KERNELS, fastest)


def kernels() -> str:
    """Return the kernels of OpenBLAS for this processor if its default is slower; else "".

    By default it uses the kernels for AVX-512 if the processor has it. On AMD's family 25, a product of 64 x 256 and a
    transposed 256 x 256 takes 84 microseconds with the kernels for AVX2 instead of 110, and no other product takes
    longer.
    """
    return "Haswell" if processor() == ("AuthenticAMD", WIDE - 1) and has("avx512f") else ""


@cache
def read_cpuinfo() -> dict[str, str]:
    """Read the description of the first processor on Linux; {} on other systems."""
    if not CPUINFO.exists():
        return {}
    description: dict[str, str] = {}
    with CPUINFO.open(encoding="utf-8") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon and description:
                break  # the others are the same, and there may be hundreds
            description[name.strip()] = value.strip()
    return description


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
