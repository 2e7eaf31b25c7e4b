"""The maker of the processor, and the BLAS kernels for numpy, which rlplug chooses if it imports numpy first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlplug_core import processor

VARIABLES = ("OPENBLAS_NUM_THREADS", processor.KERNELS)
SAY = f"import os, rlplug_core; rlplug_core.Config; print(*map(os.environ.get, {VARIABLES}))"
#: A module of the package that imports numpy without asking for a name.
INNER = "import rlplug_core.loop.events; "
GENOA = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"


@pytest.fixture
def set_cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """Return a function that sets the text of `/proc/cpuinfo`; with None it does not exist."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "CPUINFO", path)

    def set_text(text: str | None) -> None:
        if text is not None:
            path.write_text(text, encoding="utf-8")
        processor.read_cpuinfo.cache_clear()

    yield set_text
    processor.read_cpuinfo.cache_clear()


@pytest.mark.parametrize(
    ("cpuinfo", "platform_text", "found"),
    [
        (f"{GENOA}\nvendor_id\t: other\ncpu family\t: 6\n", "", ("AuthenticAMD", 25)),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "", ("", 0)),
        (None, "AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD", ("AuthenticAMD", 25)),
        (None, "arm", ("arm", 0)),
    ],
)
def test_reads_maker_and_family(
    cpuinfo: str | None,
    platform_text: str,
    found: tuple[str, int],
    set_cpuinfo: Callable[[str | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_cpuinfo(cpuinfo)
    monkeypatch.setattr("platform.processor", lambda: platform_text)
    assert processor.processor() == found


@pytest.mark.parametrize(
    ("cpuinfo", "kernels"),
    [
        (GENOA, "Haswell"),
        (GENOA.replace(" avx512f avx512_bf16", ""), ""),
        (GENOA.replace(": 25", ": 26"), ""),
        (GENOA.replace("AuthenticAMD", "GenuineIntel"), ""),
        (None, ""),
    ],
)
def test_sets_kernels_for_amd_with_narrow_avx512(
    cpuinfo: str | None, kernels: str, set_cpuinfo: Callable[[str | None], None]
) -> None:
    set_cpuinfo(cpuinfo)
    assert processor.kernels() == kernels
    assert processor.has("avx512_bf16") == (cpuinfo is not None and "avx512_bf16" in cpuinfo)


@pytest.mark.parametrize(
    ("first", "given", "found"),
    [
        ("", {}, ("1", processor.kernels() or "None")),
        ("", dict(zip(VARIABLES, ("2", "Zen"), strict=True)), ("2", "Zen")),
        ("import numpy; ", {}, ("None", "None")),
        (INNER, {}, ("1", processor.kernels() or "None")),
        (INNER, dict(zip(VARIABLES, ("2", "Zen"), strict=True)), ("2", "Zen")),
    ],
)
def test_reports_the_matrix_product_of_numpy(first: str, given: dict[str, str], found: tuple[str, str]) -> None:
    bare = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    script = [sys.executable, "-c", first + SAY]
    said = subprocess.run(script, env=bare | given, capture_output=True, text=True, check=True)
    assert tuple(said.stdout.split()) == found
