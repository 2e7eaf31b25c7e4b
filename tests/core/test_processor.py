"""What the processor says of itself, and what numpy's products are told, where rlplug is what imports numpy."""

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
#: A module within, which imports numpy and asks the package for no name.
INNER = "import rlplug_core.loop.events; "
GENOA = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """A function that sets what Linux tells of the processors; None where it tells nothing."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "CPUINFO", path)

    def told(text: str | None) -> None:
        if text is not None:
            path.write_text(text, encoding="utf-8")
        processor.read_cpuinfo.cache_clear()

    yield told
    processor.read_cpuinfo.cache_clear()


@pytest.mark.parametrize(
    ("told", "elsewhere", "found"),
    [
        (f"{GENOA}\nvendor_id\t: other\ncpu family\t: 6\n", "", ("AuthenticAMD", 25)),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "", ("", 0)),
        (None, "AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD", ("AuthenticAMD", 25)),
        (None, "arm", ("arm", 0)),
    ],
)
def test_maker_and_family_are_what_the_processor_says(
    told: str | None, elsewhere: str, found: tuple[str, int], says: Callable[[str | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    says(told)
    monkeypatch.setattr("platform.processor", lambda: elsewhere)
    assert processor.processor() == found


@pytest.mark.parametrize(
    ("told", "kernels"),
    [
        (GENOA, "Haswell"),
        (GENOA.replace(" avx512f avx512_bf16", ""), ""),
        (GENOA.replace(": 25", ": 26"), ""),
        (GENOA.replace("AuthenticAMD", "GenuineIntel"), ""),
        (None, ""),
    ],
)
def test_other_kernels_are_for_narrow_units_of_amds(
    told: str | None, kernels: str, says: Callable[[str | None], None]
) -> None:
    says(told)
    assert processor.kernels() == kernels
    assert processor.has("avx512_bf16") == (told is not None and "avx512_bf16" in told)


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
def test_the_matrix_product_of_numpy_is_reported(first: str, given: dict[str, str], found: tuple[str, str]) -> None:
    bare = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    script = [sys.executable, "-c", first + SAY]
    said = subprocess.run(script, env=bare | given, capture_output=True, text=True, check=True)
    assert tuple(said.stdout.split()) == found
