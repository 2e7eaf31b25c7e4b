"""Where actors are: what is typed wrong is one sentence, before anything is joined; what the links share."""

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


@pytest.mark.parametrize(("options", "sentence"), [
    ({"on": "rey"}, "--on rey: write local, ray, or ray://HOST:PORT"),
    ({"on": "ray://"}, "--on ray://: write local, ray, or ray://HOST:PORT"),
    ({"on": "ray", "runner": "sync"}, "places the actors of the runner 'decoupled'; use --runner decoupled"),
    ({"on": "ray", "inline": True}, "places the actors of the runner 'decoupled'; leave out --inline"),
    ({"gpus": 1}, "--gpus reserves GPUs in Ray for the learner; it needs --on ray"),
    ({"on": "ray", "gpus": 1}, "a learner that computes on the CPU; add --device cuda"),
])  # fmt: skip
def test_places_that_cannot_be_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("(", "\\(")):
        Plan.make(TINY, f"{ENVS}:Chain", {"runner": "decoupled", **options})


def test_without_ray_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlplug_core.loop.actor_placement.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"--on ray needs ray: python -m pip install 'rlplug-core\[ray\]'"):
        make_runner(TINY, f"{ENVS}:Chain", runner="decoupled", on="ray")


def test_where_a_run_is_changes_nothing_about_what_it_is() -> None:
    here = Plan.make(TINY, f"{ENVS}:Chain", {"runner": "decoupled"}).flat
    there = Plan.make(TINY, f"{ENVS}:Chain", {"runner": "decoupled", "on": "ray", "cpus_per_actor": 0.5}).flat
    assert {name for name in here if here[name] != there[name]} == {"on", "cpus_per_actor"}
    assert {"on", "cpus_per_actor"} <= PLACES
    assert group_of("a", "b", here) == group_of("a", "b", there)
    assert group_of("a", "b", here) != group_of("a", "b", {**here, "actors": 3})


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_a_chunk_that_is_packed_loses_nothing_that_is_read(ended: list[bool]) -> None:
    store: Any = None
    for t, end in enumerate(ended):
        row = np.full((2, 3), float(t), np.float32)
        flag = np.array([end, False])
        step = Step(row, flag * 1, row[:, 0], row + 0.5, flag, flag & False, flag, ~flag & True, end, {}, None)
        store = chunk_arrays(step, len(ended)) if store is None else store
        write(store, t, step)
    small = pack(store)
    assert len(small["final_obs"]) == sum(ended)
    whole = unpack(small)
    for t in range(len(ended)):
        there, here = read(whole, t), read(store, t)
        for name in ("obs", "next_obs", *FIELDS):
            assert_same(getattr(there, name), getattr(here, name))
