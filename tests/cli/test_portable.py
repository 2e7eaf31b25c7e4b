"""ONNX and TorchScript files compute the actions of their policy, for 1,000 observations of each kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from rlplug_core.acting.explorer import explorer
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.acting.recurrent import MemoryAgent, trunk_agent
from rlplug_core.config.options import Config
from rlplug_core.config.schedules import constant
from rlplug_core.export.agent import DetachedEnv
from rlplug_core.export.bundle import write
from rlplug_core.export.flat import leaves
from rlplug_core.nets.distributional import CategoricalQ, ImplicitQ
from rlplug_core.nets.memory_networks import RecurrentPolicy
from rlplug_core.nets.memory_trunk import memory_trunk
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.recurrent import Memory
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec
from tests.core.export.test_export import ACTIONS, CLOCK, NET, OBSERVATIONS, VECTOR, policy_agent, seen

#: A function from named arrays to arrays.
Model: TypeAlias = Callable[[Mapping[str, Any]], list[Any]]
#: Each kind of observations and each kind of actions once.
SEEN = ("vector", "image", "discrete", "multidiscrete", "bits", "parts")
KINDS = [*zip(SEEN, (*ACTIONS, "discrete"), strict=True), ("masked", "discrete")]


def load_files(agent: Any, spec: Spec, folder: Path) -> dict[str, Model]:
    """Write the files of an agent, and return them as functions."""
    onnxruntime = pytest.importorskip("onnxruntime")
    export = write(folder / "policy", agent, DetachedEnv(spec, spec.action), {"wrap": []}, onnx=True, torchscript=True)
    session = onnxruntime.InferenceSession(str(export / "policy.onnx"))
    names = [each.name for each in session.get_inputs()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.load(str(export / "policy.pt"))

    def by_torch(inputs: Mapping[str, Any]) -> list[Any]:
        return [output.numpy() for output in script([torch.from_numpy(inputs[name]) for name in inputs])]

    return {"onnx": lambda inputs: session.run(None, {name: inputs[name] for name in names}), "torchscript": by_torch}


def assert_same(mine: Any, theirs: Any) -> None:
    np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-5 if mine.dtype.kind == "f" else 0)


#: `tests/core/export` exports all kinds.
PLAIN = ("vector", "image", "parts", "masked")


@pytest.mark.parametrize(
    ("obs", "action"), [pytest.param(*kind, marks=() if kind[0] in PLAIN else pytest.mark.slow) for kind in KINDS]
)
def test_files_give_the_actions_of_the_policy(obs: str, action: str, tmp_path: Path) -> None:
    spec = Spec(OBSERVATIONS[obs], ACTIONS[action], 1, "Any-v0")
    agent = policy_agent(spec)
    many = seen(spec.obs, 1_000)
    mine = agent.act(many, np.ones(1_000, bool), None, CLOCK, explore=False).action
    for call in load_files(agent, spec, tmp_path).values():
        assert_same(mine, call(leaves(many))[0])


def test_dropout_is_off_in_files(tmp_path: Path) -> None:
    """A custom network may use dropout in training; the files do not, even if the network is in training mode."""
    spec = Spec(VECTOR, ACTIONS["box"], 1, "Any-v0")
    agent = policy_agent(spec)
    many = seen(spec.obs, 100)
    mine = agent.act(many, np.ones(100, bool), None, CLOCK, explore=False).action
    network: Any = agent.network
    network.encoder = torch.nn.Sequential(network.encoder, torch.nn.Dropout(0.5)).train()
    for call in load_files(agent, spec, tmp_path).values():
        assert_same(mine, call(leaves(many))[0])
    assert network.encoder.training


@pytest.mark.parametrize("cell", ["gru", pytest.param("lstm", marks=pytest.mark.slow)])
def test_memory_gives_the_actions_of_the_policy(cell: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    spec = Spec(VECTOR, ACTIONS["box"], 1, "Any-v0")
    agent: Any = MemoryAgent(RecurrentPolicy(spec, NET, cell, 8), Seeds(1))
    for call in load_files(agent, spec, tmp_path).values():
        generator = np.random.default_rng(2)
        mine = agent.initial(50)
        theirs = [np.zeros((50, 8), np.float32)] * len(mine)
        for _ in range(50):
            obs = generator.normal(size=(50, 5)).astype(np.float32)
            first = generator.random(50) < 0.1
            step = agent.act(obs, first, mine, CLOCK, explore=False)
            names = [f"memory.{part}" for part in mine]
            action, *theirs = call({"obs": obs, "first": first, **dict(zip(names, theirs, strict=True))})
            assert_same(step.action, action)
            mine = step.recurrent_state


class Window(Memory):
    """A plugin's memory: a matrix of the last three features, and their weighted sum."""

    Config = Config

    def __init__(self, features: int, config: Config) -> None:
        super().__init__()
        self.units = 4
        self.features = features
        self.layer = torch.nn.Linear(3 * features, 4)

    def initial(self, num_envs: int) -> dict[str, Any]:
        return {"h": np.zeros((num_envs, 4), np.float32), "past": np.zeros((num_envs, 3, self.features), np.float32)}

    def step(self, features: torch.Tensor, before: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        past = torch.cat([before["past"][:, 1:], features.unsqueeze(1)], 1)
        return {"h": torch.tanh(self.layer(past.flatten(1))), "past": past}


#: Networks after the memory.
VALUES: dict[str, Any] = {
    "values": QNetwork,
    "atoms": partial(CategoricalQ, low=-1, high=1, atoms=5, dueling=True, noisy="factorized"),
    "quantiles": partial(ImplicitQ, shares=4),
}


@pytest.mark.parametrize(
    "kind",
    ["policy", "atoms", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("trunk", "values", "quantiles"))],
)
def test_memory_of_a_plugin_gives_the_actions_of_the_policy(kind: str, tmp_path: Path) -> None:
    """For a policy, for several kinds of action values, and for the trunk of critics."""
    torch.manual_seed(1)
    words = f"{__file__}:Window"
    action = ACTIONS["discrete"] if kind in VALUES else ACTIONS["box"]
    spec = Spec(VECTOR, action, 1, "Any-v0")
    agent: Any
    if kind == "policy":
        agent = MemoryAgent(RecurrentPolicy(spec, NET, words), Seeds(1))
    elif kind in VALUES:
        network = RecurrentQ(spec, replace(NET, output_gain=None), words, make=VALUES[kind])
        agent = explorer(network, constant(0.0), Seeds(1))
    else:
        trunk = memory_trunk(spec, NET, words)
        agent = trunk_agent(trunk, PolicyAgent(PolicyNetwork(trunk.spec, trunk.net), Seeds(1)))
    for call in load_files(agent, spec, tmp_path).values():
        generator = np.random.default_rng(2)
        mine = agent.initial(20)
        theirs = [np.zeros_like(part) for part in mine.values()]
        for _ in range(30):
            obs = generator.normal(size=(20, 5)).astype(np.float32)
            first = generator.random(20) < 0.1
            step = agent.act(obs, first, mine, CLOCK, explore=False)
            names = [f"memory.{part}" for part in mine]
            action, *theirs = call({"obs": obs, "first": first, **dict(zip(names, theirs, strict=True))})
            assert_same(step.action, action)
            mine = step.recurrent_state
