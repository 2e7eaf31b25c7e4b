"""The seed tree: independent by name, repeatable, and saved within a block."""

from __future__ import annotations

import random

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.seeds import Draws, Seeds, global_state, load_global_state, preserve_generators, seed_globals
from rlplug_core.types import Array
from tests.core.fakes import save_and_load

NAMES = st.lists(st.tuples(st.text(max_size=5), st.integers(0, 3)), max_size=3)


def at(seed: int, path: list[tuple[str, int]]) -> Seeds:
    node = Seeds(seed)
    for name, number in path:
        node = node.child(name, number)
    return node


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5), NAMES, st.integers(0, 5), NAMES)
def test_nodes_draw_alike_only_if_equal(
    seed: int, path: list[tuple[str, int]], other_seed: int, other_path: list[tuple[str, int]]
) -> None:
    one, other = at(seed, path), at(other_seed, other_path)
    same = (seed, path) == (other_seed, other_path)
    assert (one.generator().random(4).tolist() == other.generator().random(4).tolist()) is same
    assert 0 <= one.integer() < 2**31


def test_similar_seeds_are_independent() -> None:
    """Also seed 0, numbered children and a child of a child."""
    nodes = [Seeds(seed).child("agent", number) for seed in range(20) for number in range(20)]
    assert len({node.integer() for node in nodes}) == 400
    drawn = np.array([node.generator().random(200) for node in nodes[:60]])
    assert np.abs(np.corrcoef(drawn) - np.eye(60)).max() < 0.35
    assert Seeds(0).child("a").child("b").integer() != Seeds(0).child("b").child("a").integer()


def test_generator_is_new_each_time() -> None:
    node = Seeds(0).child("env")
    first, second = node.generator(), node.generator()
    assert first.random() == second.random()
    first.random()
    assert first.random() != second.random()


def block(generator: np.random.Generator, size: int) -> Array:
    return generator.normal(size=(size, 2))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(0, 20), st.integers(0, 5))
def test_draws_resume_within_a_block(size: int, before: int, seed: int) -> None:
    draws = Draws(Seeds(seed).generator(), block, size)
    expected = [draws.next().tolist() for _ in range(before + 20)]
    again = Draws(Seeds(seed).generator(), block, size)
    assert [again.next().tolist() for _ in range(before)] == expected[:before]
    resumed = Draws(Seeds(seed + 1).generator(), block, size)
    resumed.next()
    resumed.load_state_dict(save_and_load(again.state_dict()))
    assert [resumed.next().tolist() for _ in range(20)] == expected[before:]


def test_block_equals_single_draws() -> None:
    draws = Draws(Seeds(3).generator(), block, 5)
    generator = Seeds(3).generator()
    whole = np.concatenate([block(generator, 5), block(generator, 5)])
    np.testing.assert_array_equal([draws.next() for _ in range(10)], whole)


def global_draws() -> list[float]:
    return [float(torch.rand(())), float(torch.randn(())), np.random.normal(), random.random(), random.gauss(0, 1)]


def test_global_generators_are_saved_and_loaded() -> None:
    seed_globals(Seeds(0))
    global_draws()
    state = save_and_load(global_state())
    expected = global_draws() + global_draws()
    load_global_state(state)
    assert global_draws() + global_draws() == expected


def test_seed_of_the_process_repeats_and_matters() -> None:
    drawn = []
    for seed in (0, 1, 0):
        seed_globals(Seeds(seed))
        drawn.append(global_draws())
    assert drawn[0] == drawn[2] != drawn[1]


def test_untouched_restores_generators_after_an_error() -> None:
    seed_globals(Seeds(0))
    state = global_state()
    expected = global_draws()
    load_global_state(state)
    try:
        with preserve_generators():
            global_draws()
            seed_globals(Seeds(9))
            raise RuntimeError
    except RuntimeError:
        pass
    assert global_draws() == expected
