"""The kit gives signals, data sets, views and goals to algorithms that ask for them, and detects wrong uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlplug_core.testing.envs import Chain
from rlplug_core.testing.kit.examination import Examination
from rlplug_core.testing.kit.extra_inputs import with_signals
from tests.core.asking import (
    LoadsOnlyWithDataset,
    LosesDatasetState,
    NanDefault,
    Relabels,
    RelabelsWithoutEnd,
    SubtractsCost,
    UnknownDatasetUse,
    UnusedDataset,
    UnusedSignal,
)
from tests.core.carrying import (
    CarryingQ,
    CountsUses,
    Exports,
    ExportsAnother,
    ExportsWithoutReset,
    LosesExtras,
    MisplacesExtras,
    UndeclaredExtras,
)
from tests.core.demonstrations import Imitates, MixesDataset, NeedsDataset
from tests.core.fakes import Tiny
from tests.core.viewing import (
    ActsOnTheCriticsView,
    BuildsTheActorLikeTheCritic,
    BuildsTheCriticLikeTheActor,
    ExportsItsCritic,
    IgnoresCriticNet,
    IgnoresCriticObs,
    IgnoresNetObs,
    LeavesTheCriticUntrained,
    Linear,
    RefusesDicts,
    RefusesItsOptions,
    Views,
)


@pytest.mark.parametrize(
    ("kind", "check", "status", "message"),
    [
        (SubtractsCost, "signals", "passed", ""),
        (SubtractsCost, "resume", "passed", ""),
        (SubtractsCost, "termination", "passed", ""),
        (SubtractsCost, "async", "passed", ""),
        (SubtractsCost, "decoupled", "passed", ""),
        (Tiny, "signals", "skipped", "it names no signals"),
        (UnusedSignal, "signals", "failed", "it names cost in signals, and updates do not depend on them"),
        (NanDefault, "signals", "failed", "the default of signals['cost'] is not finite"),
        (Imitates, "dataset", "passed", ""),
        (Imitates, "resume", "passed", ""),
        (Imitates, "weight-scale", "passed", ""),
        (MixesDataset, "weight-scale", "passed", ""),
        (NeedsDataset, "async", "passed", ""),
        (NeedsDataset, "decoupled", "passed", ""),
        (Tiny, "dataset", "skipped", "it does not ask for a data set"),
        (UnusedDataset, "dataset", "failed", "three updates draw nothing from self.dataset"),
        (UnknownDatasetUse, "dataset", "failed", "dataset_use is 'always'; write 'replay', 'optional' or 'required'"),
        (
            LoadsOnlyWithDataset,
            "dataset",
            "failed",
            "without a data set, as in an evaluation, it does not load its state",
        ),
        (Tiny, "extras", "skipped", "it writes no extras"),
        (CountsUses, "extras", "passed", ""),
        (CountsUses, "resume", "passed", ""),
        (CarryingQ, "extras", "passed", ""),
        (CarryingQ, "memory", "passed", ""),
        (CarryingQ, "inputs", "passed", ""),
        (CarryingQ, "decoupled", "passed", ""),
        (Tiny, "export", "skipped", "its agents have no method exported()"),
        (Exports, "export", "passed", ""),
        (ExportsWithoutReset, "export", "failed", "a module with a memory must reset the rows with `first`"),
        (ExportsAnother, "export", "failed", "the exported policy takes"),
        (MisplacesExtras, "extras", "failed", "`feedback` must store each row at its own step"),
        (LosesExtras, "extras", "failed", "it writes extras['uses'], and later batches do not have it"),
        (UndeclaredExtras, "updates", "failed", "add it where the buffer is made: .with_extras(uses=0.0)"),
        (LosesDatasetState, "dataset", "failed", "draws other batches from its data set"),
        (RefusesDicts, "views", "skipped", "it refuses Dict observations: observations must be vectors"),
        (Views, "views", "passed", ""),
        (Linear, "views", "passed", ""),
        (Tiny, "views", "passed", ""),
        (IgnoresCriticNet, "views", "failed", "no network of critic_net.hidden units reads the key of critic_net.obs"),
        (IgnoresNetObs, "views", "failed", "actions depend on another key, 'critic_key'; build the policy from net"),
        (ActsOnTheCriticsView, "views", "failed", "actions depend on another key, 'critic_key'"),
        (IgnoresCriticObs, "views", "failed", "the critic reads keys that critic_net.obs does not have"),
        (BuildsTheCriticLikeTheActor, "views", "failed", "reads a key that net.obs does not have; if it is the critic"),
        (BuildsTheActorLikeTheCritic, "views", "failed", "no network of net.hidden units reads the key of net.obs"),
        (LeavesTheCriticUntrained, "views", "failed", "updates do not depend on the key of critic_net.obs"),
        (ExportsItsCritic, "views", "failed", "exported() reads 'critic_key', a key that net.obs does not have"),
        (Relabels, "termination", "passed", ""),
        (Relabels, "truncation", "passed", ""),
        (Relabels, "weight-zero", "passed", ""),
        (Relabels, "pauses", "passed", ""),
        (Relabels, "rewards", "skipped", "its batches have other observations than the environment"),
        (RelabelsWithoutEnd, "termination", "failed", "depends on observations after a termination"),
        (RefusesItsOptions, "views", "failed", "it refuses its options net.obs and critic_net.obs: the policy reads"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value,
)
def test_outcome_of_check(kind: type[Any], check: str, status: str, message: str) -> None:
    outcome = Examination(_path(kind), {}, getattr(kind, "world", None), {})._raw_outcome(check)
    assert (outcome.status, message in outcome.message) == (status, True), outcome.message


def _path(kind: type[Any]) -> str:
    module = __import__(kind.__module__, fromlist=["x"])
    return f"{module.__file__}:{kind.__name__}"


def test_signals_continue_from_a_state() -> None:
    env: Any = with_signals(Chain(2), SubtractsCost)
    assert with_signals(Chain(2), Tiny).__class__ is Chain
    env.reset(0)
    first = [np.array(env.info("cost")) for _ in range(3) if env.step(np.ones(2, np.int64))]
    assert np.array(env.info("pair")).shape == (2, 2)
    assert env.info("other") == [None, None]
    state = env.state_dict()
    env.step(np.ones(2, np.int64))
    expected = env.info("cost")
    resumed: Any = with_signals(Chain(2), SubtractsCost)
    resumed.reset(0)
    resumed.load_state_dict(state)
    resumed.step(np.ones(2, np.int64))
    assert np.array_equal(expected, resumed.info("cost"))
    assert len({str(value) for value in first}) > 1
