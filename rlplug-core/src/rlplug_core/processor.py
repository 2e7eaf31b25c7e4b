"""Identify the processor, and choose the kernels of numpy's products; needs only the standard library."""

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
TOLD = Path("/proc/cpuinfo")
#: The first family of AMD's processors with 512 bits wide units for AVX-512. Those of family 25 work through it in
#: halves, and gain nothing by it.
WIDE = 26


def processor() -> tuple[str, int]:
    """Return the processor's maker and family; "" and 0 if they are unknown."""
    says = read_cpuinfo()
    if not says:
        said = platform.processor()  # says it on Windows
        family = re.search(r"Family (\d+)", said)
        return said.split(",")[-1].strip(), int(family[1]) if family else 0
    return says.get("vendor_id", ""), int(says.get("cpu family", 0))


def has(instructions: str) -> bool:
    """Return whether the processor has these instructions, such as `avx512_bf16`."""
    return instructions in read_cpuinfo().get("flags", "").split()


def tell_openblas() -> None:
    """Let OpenBLAS, numpy's library for products, use one thread and the best kernels, unless the user set them.

    It reads the settings once, when numpy is imported. On more threads small products take ten times as long.
    """
    if "numpy" in sys.modules:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if suiting := kernels():
        os.environ.setdefault(KERNELS, suiting)


def kernels() -> str:
    """Return the kernels of OpenBLAS for this processor if its default is slower; else "".

    It takes those for AVX-512 if the processor has it. With those for AVX2 a product of 64 x 256 by 256 x 256 turned
    takes 84 microseconds in place of 110 on AMD's family 25, and no other takes longer.
    """
    return "Haswell" if processor() == ("AuthenticAMD", WIDE - 1) and has("avx512f") else ""


@cache
def read_cpuinfo() -> dict[str, str]:
    """Read the description of the first processor on Linux; {} on other systems."""
    if not TOLD.exists():
        return {}
    found: dict[str, str] = {}
    with TOLD.open(encoding="utf-8") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon and found:
                break  # the others are the same, and there may be hundreds
            found[name.strip()] = value.strip()
    return found


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
