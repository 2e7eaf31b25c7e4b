"""Runs of an older plugin version stay usable after an option or a layer is renamed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import rlplug_core as rl
from rlplug_core.errors import BadConfig, PluginError
from rlplug_core.loop.plan import Plan
from rlplug_core.runs import reproducibility
from tests.core.fakes import Tiny, TinyConfig
from tests.core.nets.test_normalize import learner

HERE = "tests.core.runs.test_renamed_options"
ENV = "rlplug_core.testing.envs:Chain"


@dataclass(frozen=True)
class RenamedConfig(TinyConfig):
    """The next version of `TinyConfig`."""

    entropy_weight: float = 0.0  # weight of the entropy

    formerly: ClassVar[dict[str, str]] = {"ent_weight": "entropy_weight"}


class Former(Tiny):
    """The older version."""

    def build(self) -> None:
        super().build()
        self.extra = nn.Linear(1, 1)


class Renamed(Tiny):
    """The next version of `Former`: an option and a layer have other names."""

    Config = RenamedConfig
    state_version = 2

    def build(self) -> None:
        super().build()
        self.bonus = nn.Linear(1, 1)

    @classmethod
    def migrate(cls, state: rl.State, version: int) -> rl.State:
        assert version == 1
        return {name.replace("extra.", "bonus."): value for name, value in state.items()}


class Rigid(Tiny):
    """A next version without a migration."""

    state_version = 2


def test_former_name_sets_the_option() -> None:
    plan = Plan.make(f"{HERE}:Renamed", ENV, {"ent_weight": 0.5, "total_timesteps": 10})
    assert plan.config.entropy_weight == 0.5
    with pytest.raises(BadConfig, match="option 'ent_weight' is now 'entropy_weight', and both are given"):
        Plan.make(f"{HERE}:Renamed", ENV, {"ent_weight": 0.5, "entropy_weight": 0.5})


@pytest.mark.parametrize("nested", [False, True])
def test_migrates_state_of_older_version(nested: bool) -> None:
    before: Any = learner(Former, TinyConfig())
    current: Any = learner(Renamed, RenamedConfig())
    if nested:
        nn.ModuleDict({"part": current}).load_state_dict(nn.ModuleDict({"part": before}).state_dict())
    else:
        current.load_state_dict(before.state_dict())
    assert torch.equal(current.bonus.weight, before.extra.weight)
    assert torch.equal(current.critic.output.bias, before.critic.output.bias)
    reloaded: Any = learner(Renamed, RenamedConfig())
    reloaded.load_state_dict(current.state_dict())  # a state of the same version needs no migration
    assert torch.equal(reloaded.bonus.weight, before.extra.weight)


def test_state_without_migration_raises() -> None:
    with pytest.raises(PluginError, match="Rigid cannot load a state of version 1, because its version is 2"):
        learner(Rigid, TinyConfig()).load_state_dict(learner(Former, TinyConfig()).state_dict())


def test_run_of_another_version_names_the_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rl.train(f"{HERE}:Renamed", ENV, {"total_timesteps": 200, "entropy_weight": 0.1}, out=tmp_path, hooks=False)
    monkeypatch.setattr(Renamed, "Config", TinyConfig)
    with pytest.raises(BadConfig, match=r"has no option 'entropy_weight' .*lists them\)$"):
        rl.open_run(run.path).policy()
    monkeypatch.setattr(reproducibility, "version", lambda name: "9.9")
    with pytest.raises(
        rl.UsageError, match=rf"; run {run.name} was made with rlplug-core==0\.1\.0: python -m pip install"
    ):
        rl.open_run(run.path).policy()
