"""Finds arrays that share memory, and arrays and strings with equal content, among everything that is captured."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlplug_core.types import Array
from rlplug_envs.capture.state_format import (
    MAX_BYTES,
    SHARED_FROM,
    Path,
    Uncapturable,
    describe_attribute,
    describe_path,
)


@dataclass(slots=True)
class Block:
    """The memory of one array; `order` counts the arrays."""

    low: int
    high: int
    order: int
    path: Path


def address_range(array: Array) -> tuple[int, int]:
    """Return the first address of an array's elements, and the one after the last."""
    low = high = int(array.__array_interface__["data"][0])
    for length, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (length - 1) * stride)
        high += max(0, (length - 1) * stride)
    return low, high + array.itemsize


class Blocks:
    """The memory of all captured arrays, to find two that overlap: restoring would separate them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(self, array: Array, path: Path) -> None:
        """Note an array's memory; an empty array has none."""
        if array.size:
            low, high = address_range(array)
            self.blocks.append(Block(low, high, len(self.blocks), path))

    def refuse_overlaps(self) -> None:
        """Raise Uncapturable if two arrays share memory; sorting makes one pass over neighbors enough."""
        widest: Block | None = None
        for block in sorted(self.blocks, key=lambda block: block.low):
            if widest is not None and block.low < widest.high:
                first, second = sorted((widest, block), key=lambda block: block.order)
                raise Uncapturable(
                    f"{describe_path(second.path)} shares memory with {describe_path(first.path)}, "
                    "which cannot be captured"
                )
            if widest is None or block.high > widest.high:
                widest = block


class Contents:
    """The arrays and strings that were stored so far; equal ones are stored once, and their bytes are limited."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, tuple[int, ...], int], list[tuple[Path, Array]]] = {}
        self._texts: dict[str, Path] = {}
        self._sizes: dict[Path, int] = {}
        self._total = 0

    def find_array(self, array: Array, path: Path) -> Path | None:
        """Return the path of an equal array that is stored already; None if this one must be stored at `path`."""
        if array.nbytes >= SHARED_FROM:
            candidates = self._arrays.setdefault(
                (array.dtype.str, array.shape, zlib.crc32(array.data)), []
            )
            content = array.view(np.uint8)
            for stored_path, stored in candidates:
                if np.array_equal(stored.view(np.uint8), content):
                    return stored_path
            candidates.append((path, array))
        self._count(array.nbytes, path)
        return None

    def find_text(self, text: str, path: Path) -> Path | None:
        """Return the path of an equal text that is stored already; None if this one must be stored at `path`."""
        if text in self._texts:
            return self._texts[text]
        self._texts[text] = path
        self._count(len(text), path)
        return None

    def _count(self, size: int, path: Path) -> None:
        """Add bytes; raise Uncapturable with the largest attribute if there are too many."""
        self._total += size
        self._sizes[path] = size
        if self._total > MAX_BYTES:
            name = largest_attribute(iter(self._sizes.items()))
            raise Uncapturable(
                f"{name} makes the state larger than {MAX_BYTES >> 20} MiB, the most that a checkpoint takes"
            )


def largest_attribute(sizes: Iterator[tuple[Path, int]]) -> str:
    """Return the attribute of the environment with the largest sum of sizes, for a message."""
    totals: dict[str, int] = {}
    for path, size in sizes:
        name = describe_attribute(path)
        totals[name] = totals.get(name, 0) + size
    return max(totals, key=totals.__getitem__)
