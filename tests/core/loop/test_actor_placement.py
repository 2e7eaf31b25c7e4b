"""Placement of actors: wrong options raise, and packed chunks lose nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlplug_core.errors import MissingPackage, UsageError
from rlplug_core.loop.chunks import FIELDS, chunk_arrays, pack, read, unpack, write
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.directory import PLACES, group_of
from rlplug_core.types import Step
from tests.core.fakes import ENVS, TINY, assert_same, make_runner


@pytest.mark.parametrize(("options", "message"), [
    ({"on": "rey"}, "--on rey: write local, ray, or ray://HOST:PORT"),
    ({"on": "ray://"}, "--on ray://: write local, ray, or ray://HOST:PORT"),
    ({"on": "ray", "runner": "sync"}, "places the actors of the runner 'decoupled'; use --runner decoupled"),
    ({"on": "ray", "inline": True}, "places the actors of the runner 'decoupled'; leave out --inline"),
    ({"gpus": 1}, "--gpus reserves GPUs in Ray for the learner; it needs --on ray"),
    ({"on": "ray", "gpus": 1}, "a learner that computes on the CPU; add --device cuda"),
])  # fmt: skip
def test_invalid_placement_raises(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", "\\(")):
        Plan.make(TINY, f"{ENVS}:Chain", {"runner": "decoupled", **options})


def test_missing_ray_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_core.loop.actor_placement.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"--on ray needs ray: python -m pip install 'rlplug-core\[ray\]'"):
        make_runner(TINY, f"{ENVS}:Chain", runner="decoupled", on="ray")


def test_placement_does_not_change_the_group() -> None:
    local = Plan.make(TINY, f"{ENVS}:Chain", {"runner": "decoupled"}).flat
    remote = Plan.make(TINY, f"{ENVS}:Chain", {"runner": "decoupled", "on": "ray", "cpus_per_actor": 0.5}).flat
    assert {name for name in local if local[name] != remote[name]} == {"on", "cpus_per_actor"}
    assert {"on", "cpus_per_actor"} <= PLACES
    assert group_of("a", "b", local) == group_of("a", "b", remote)
    assert group_of("a", "b", local) != group_of("a", "b", {**local, "actors": 3})


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_packed_chunk_loses_nothing(ends: list[bool]) -> None:
    store: Any = None
    for t, end in enumerate(ends):
        row = np.full((2, 3), float(t), np.float32)
        flag = np.array([end, False])
        step = Step(row, flag * 1, row[:, 0], row + 0.5, flag, flag & False, flag, ~flag & True, end, {}, None)
        store = chunk_arrays(step, len(ends)) if store is None else store
        write(store, t, step)
    packed = pack(store)
    assert len(packed["final_obs"]) == sum(ends)
    unpacked = unpack(packed)
    for t in range(len(ends)):
        found, expected = read(unpacked, t), read(store, t)
        for name in ("obs", "next_obs", *FIELDS):
            assert_same(getattr(found, name), getattr(expected, name))
