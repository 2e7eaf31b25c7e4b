"""The sum tree against plain sums over the whole array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.buffers.sum_tree import TOP, WIDTH, SumTree
from rlplug_core.types import Array

#: Around the sizes at which the tree has one, two and three levels.
SIZES = st.sampled_from(
    [1, 7, WIDTH, TOP - 1, TOP, TOP + 1, TOP + WIDTH, TOP * WIDTH, TOP * WIDTH + 1, 2 * TOP * WIDTH]
)


def random_tree(size: int, rng: np.random.Generator, changes: int) -> tuple[SumTree, Array]:
    """Return a tree after random changes, and its masses as an array; many are 0, some tiny, some large."""
    tree = SumTree(size)
    plain = np.zeros(size)
    for _ in range(changes):
        start = int(rng.integers(size))
        stop = min(size, start + int(rng.integers(1, 100)))
        index = rng.integers(0, size, 20)
        mass = rng.choice([0.0, 1e-12, 0.3, 1.0, 1e6], 20) * rng.random(20)
        if rng.random() < 0.5:
            tree.fill(start, stop, float(mass[0]))
            plain[start:stop] = mass[0]
        else:
            tree.set(index, mass)
            for position, value in zip(index, mass, strict=True):  # the last of equal indices counts
                plain[position] = value
    return tree, plain


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_find_equals_a_search_in_cumulative_sums(size: int, seed: int, changes: int) -> None:
    rng = np.random.default_rng(seed)
    tree, plain = random_tree(size, rng, changes)
    np.testing.assert_array_equal(tree.mass, plain)
    assert tree.total == pytest.approx(plain.sum())
    if not plain.any():
        return
    points = np.concatenate([rng.random(50) * tree.total, [0.0, tree.total, np.nextafter(tree.total, 0)]])
    index = tree.find(points)
    assert (plain[index] > 0).all()
    running = np.cumsum(plain)
    slack = 1e-9 * plain.sum()
    assert (running[index] + slack >= points).all()
    assert (running[index] - plain[index] - slack <= points).all()


@settings(max_examples=30, deadline=None)
@given(SIZES, st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_sums_depend_on_masses_only(size: int, seed: int, changes: int) -> None:
    """Exact resume needs equal bits, not only equal sums."""
    tree, plain = random_tree(size, np.random.default_rng(seed), changes)
    fresh = SumTree(size)
    fresh.load(plain)
    assert tree.total == fresh.total
    for ours, theirs in zip(tree.levels, fresh.levels, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_find_returns_each_of_equal_masses() -> None:
    tree = SumTree(5000)
    tree.fill(0, 5000, 0.5)
    np.testing.assert_array_equal(tree.find(np.arange(5000) * 0.5), np.arange(5000))
