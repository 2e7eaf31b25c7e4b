"""Arrays of actions with several parts: splitting, joining, sampling and masks."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.nets.actions import (
    choices,
    dtype_of,
    join,
    legal,
    parts,
    row_of,
    sample,
    sample_legal,
    shape_of,
    split,
)

PLAIN: list[spaces.Space[Any]] = [
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 4]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    spaces.Box(-1, 1, (2,), np.float32),
]
DICTS = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(
        lambda each: spaces.Dict({f"part {number}": space for number, space in enumerate(each)})
    ),
    max_leaves=6,
)
NESTED = spaces.Dict(
    [
        ("z", spaces.Discrete(3)),
        ("a", spaces.Dict([("box", spaces.Box(-1, 1, (2, 2), np.float32)), ("dials", spaces.MultiDiscrete([3, 2]))])),
        ("bits", spaces.MultiBinary(3)),
    ]
)


def test_parts_follow_the_order_of_the_space() -> None:
    found = [(part.keys, part.columns) for part in parts(NESTED)]
    assert found == [
        (("z",), slice(0, 1)), (("a", "box"), slice(1, 5)), (("a", "dials"), slice(5, 7)), (("bits",), slice(7, 10)),
    ]  # fmt: skip
    assert shape_of(NESTED) == (10,)
    assert dtype_of(NESTED) == dtype_of(spaces.Box(-1, 1, (2,), np.float64)) == np.float32
    action = np.array([[2, 0.1, 0.2, 0.3, 0.4, 1, 0, 1, 0, 1]], np.float32)
    tree = split(NESTED, action)
    assert tree["z"].tolist() == [2]
    assert tree["a"]["box"].shape == (1, 2, 2)
    assert tree["a"]["dials"].tolist() == [[1, 0]]
    assert tree["bits"].tolist() == [[1, 0, 1]]
    assert [tree["z"].dtype, tree["a"]["dials"].dtype, tree["bits"].dtype] == [np.int64, np.int64, np.int8]


@settings(max_examples=60, deadline=None)
@given(DICTS, st.integers(1, 4))
def test_join_inverts_split(space: spaces.Space[Any], num_envs: int) -> None:
    """Each row that is split off is an element of the space."""
    space.seed(0)
    action = sample(space, num_envs)
    assert action.shape == (num_envs, *shape_of(space))
    assert action.dtype == dtype_of(space)
    tree = split(space, action)
    for number in range(num_envs):
        element = row_of(tree, number)
        assert space.contains(element if isinstance(element, dict) else np.asarray(element, space.dtype)[()])
    np.testing.assert_array_equal(join(space, tree), action)


def test_sample_draws_row_by_row() -> None:
    NESTED.seed(1)
    drawn = sample(NESTED, 2)
    NESTED.seed(1)
    rows = np.concatenate([sample(NESTED, 1), sample(NESTED, 1)])
    np.testing.assert_array_equal(drawn, rows)
    assert len(np.unique(drawn[:, 1])) == 2


def test_one_of_selects_a_row_of_tuples_and_dictionaries() -> None:
    tree = ({"a": np.array([1, 2]), "b": (np.array([[3], [4]]),)}, np.array([5, 6]))
    first, second = row_of(tree, 1)
    assert first["a"] == 2
    assert first["b"][0].tolist() == [4]
    assert second == 6


@pytest.mark.parametrize(
    ("space", "count"),
    [(PLAIN[0], 3), (PLAIN[1], 6), (PLAIN[2], 11), (PLAIN[3], 0), (PLAIN[5], 0), (NESTED, 3 + 5)],
)
def test_choices_counts_mask_entries(space: spaces.Space[Any], count: int) -> None:
    assert choices(space) == count


def next_allowed(choice: int, allowed: list[bool]) -> int:
    """Return the first allowed choice from `choice` on, cyclically, or `choice` if all are masked."""
    cyclic = [*range(choice, len(allowed)), *range(choice)]
    return next((at for at in cyclic if allowed[at]), choice)


@settings(max_examples=60, deadline=None)
@given(DICTS | st.sampled_from(PLAIN), st.integers(1, 4), st.integers(0, 2**31))
def test_legal_replaces_masked_action_by_next_allowed_one(space: spaces.Space[Any], num_envs: int, seed: int) -> None:
    """Some masks allow nothing."""
    space.seed(seed)
    action = sample(space, num_envs)
    mask = np.random.default_rng(seed).integers(0, 2, (num_envs, choices(space)))
    before = action.copy()
    found = legal(space, action, mask)
    assert (found.shape, found.dtype) == (action.shape, action.dtype)
    np.testing.assert_array_equal(action, before)
    given, taken = action.reshape(num_envs, -1), found.reshape(num_envs, -1)
    for row in range(num_envs):
        entries = iter((mask[row] != 0).tolist())
        expected = given[row].copy()
        for part in parts(space):
            sizes = {spaces.Discrete: lambda part: [part.n], spaces.MultiDiscrete: lambda part: part.nvec.flatten()}
            for column, size in enumerate(sizes.get(type(part.space), lambda part: [])(part.space), part.columns.start):
                expected[column] = next_allowed(int(given[row, column]), [next(entries) for _ in range(size)])
        np.testing.assert_array_equal(taken[row], expected)


@settings(max_examples=60, deadline=None)
@given(DICTS | st.sampled_from(PLAIN), st.integers(1, 4), st.integers(0, 2**31))
def test_sample_legal_respects_masks(space: spaces.Space[Any], num_envs: int, seed: int) -> None:
    space.seed(seed)
    mask = np.random.default_rng(seed).integers(0, 2, (num_envs, choices(space)))
    found = sample_legal(space, mask)
    plain = sample(space, num_envs)
    assert (found.shape, found.dtype) == (plain.shape, plain.dtype)
    np.testing.assert_array_equal(found, legal(space, found, mask))


def test_sample_legal_is_uniform() -> None:
    """The next legal action after a random one would be 0 once and 6 six times."""
    space = spaces.MultiDiscrete([7, 3], seed=1)
    mask = np.tile([1, 0, 0, 0, 0, 0, 1, 0, 1, 1], (4_000, 1))
    first, second = sample_legal(space, mask).T
    assert set(first) == {0, 6}
    assert set(second) == {1, 2}
    for drawn in (first == 6, second == 2, (first == 6) == (second == 2)):
        assert abs(drawn.mean() - 0.5) < 4 * 0.5 / 4_000**0.5
