"""An exported policy acts like its agent on all kinds of spaces, and its files execute no other code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from rlplug_core.acting.continuous import GaussianNoise, NoiseAgent, SampleAgent
from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.acting.recurrent import MemoryAgent, MemoryGreedy
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.export import formats
from rlplug_core.export.agent import DetachedEnv
from rlplug_core.export.bundle import JSON, TENSORS, new_directory, read, trace_policy, write
from rlplug_core.export.flat import Flat, leaves
from rlplug_core.export.greedy import Greedy, greedy
from rlplug_core.export.program import operation
from rlplug_core.export.spaces import space_from_json, space_to_json, to_env_action
from rlplug_core.nets.continuous import DeterministicPolicy
from rlplug_core.nets.heads import squashed
from rlplug_core.nets.many_agents import PerAgent
from rlplug_core.nets.memory_networks import RecurrentPolicy
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.recurrent_q import RecurrentQ
from rlplug_core.seeds import Seeds
from rlplug_core.types import MASK, Spec
from tests.tables import for_each

CLOCK = Clock(1)
#: Large outputs, so that no two actions are almost equally good.
NET = Net(hidden=(16,), output_gain=1.0)
VECTOR = spaces.Box(-3, 3, (5,), np.float32)
BOUNDED = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": VECTOR,
    "image": spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "gray image": spaces.Box(0, 255, (32, 32, 1), np.uint8),
    "four frames": spaces.Box(0, 255, (32, 32, 4), np.uint8),
    "bytes": spaces.Box(0, 255, (128,), np.uint8),
    "grid": spaces.Box(-1, 1, (4, 5), np.float32),
    "discrete": spaces.Discrete(7, start=-2),
    "multidiscrete": spaces.MultiDiscrete([3, 5]),
    "pixels and state": spaces.Dict({"camera": spaces.Box(0, 255, (32, 32, 1), np.uint8), "state": VECTOR}),
    "bits": spaces.MultiBinary(6),
    "parts": spaces.Dict({"hand": VECTOR, "tool": spaces.Dict({"kind": spaces.Discrete(4), "at": BOUNDED})}),
    "masked": spaces.Dict({"obs": VECTOR, MASK: spaces.MultiBinary(4)}),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4),
    "multidiscrete": spaces.MultiDiscrete([3, 2, 4]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "parts": spaces.Dict({"gear": spaces.Discrete(3), "pedals": spaces.Box(-1, 1, (2,), np.float32)}),
}


def policy_agent(spec: Spec, net: Net = NET) -> PolicyAgent:
    torch.manual_seed(1)
    return PolicyAgent(PolicyNetwork(spec, net), Seeds(1))


def export(agent: Any, spec: Spec, folder: Path) -> Any:
    return read(write(folder / "policy", agent, DetachedEnv(spec, spec.action), {"wrap": []})).agent


def seen(space: spaces.Space[Any], count: int) -> Any:
    """Return random observations."""
    every = batch_space(space, count)
    every.seed(3)
    return dict_of(every.sample())


def dict_of(tree: Any) -> Any:
    return {key: dict_of(part) for key, part in tree.items()} if isinstance(tree, dict) else tree


def assert_same_actions(agent: Any, restored: Any, space: spaces.Space[Any], count: int = 500) -> None:
    obs = seen(space, count)
    first = np.ones(count, bool)
    mine = agent.act(obs, first, agent.initial(count), CLOCK, explore=False).action
    theirs = restored.act(obs, first, restored.initial(count), CLOCK).action
    assert mine.shape == theirs.shape
    if mine.dtype.kind == "f":
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    else:
        np.testing.assert_array_equal(mine, theirs)
    assert len(np.unique(mine, axis=0)) > 1  # a constant policy would prove nothing


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_export_has_the_same_actions_for_all_observations(kind: str, tmp_path: Path) -> None:
    spec = Spec(OBSERVATIONS[kind], ACTIONS["discrete"], 1, "Any-v0")
    agent = policy_agent(spec)
    assert_same_actions(agent, export(agent, spec, tmp_path), spec.obs)


@pytest.mark.parametrize("kind", ACTIONS)
def test_export_has_the_same_actions_of_all_kinds(kind: str, tmp_path: Path) -> None:
    spec = Spec(VECTOR, ACTIONS[kind], 1, "Any-v0")
    agent = policy_agent(spec)
    assert_same_actions(agent, export(agent, spec, tmp_path), spec.obs)


def test_export_of_every_agent_has_the_same_actions(tmp_path: Path) -> None:
    torch.manual_seed(1)
    choice = Spec(VECTOR, ACTIONS["discrete"], 1, "A-v0")
    box = Spec(VECTOR, ACTIONS["box"], 1, "B-v0")
    agents: list[tuple[Any, Spec]] = [
        (EpsilonGreedy(QNetwork(choice, NET, dueling=True), constant(0.1), Seeds(1)), choice),
        (SampleAgent(PolicyNetwork(box, NET, make=squashed), Seeds(1)), box),
        (NoiseAgent(DeterministicPolicy(box, NET), GaussianNoise(0.1), Seeds(1)), box),
        (EpsilonGreedy(PerAgent(lambda: QNetwork(choice, NET), 3), constant(0.1), Seeds(1)), choice),  # type: ignore[arg-type]
    ]
    for number, (agent, spec) in enumerate(agents):
        assert_same_actions(agent, export(agent, spec, tmp_path / str(number)), spec.obs, 501)
    with pytest.raises(UsageError, match="each of 3 agents has its own network, and there are 4 observations"):
        assert_same_actions(agent, read(tmp_path / "3" / "policy").agent, spec.obs, 4)


def test_export_normalizes_observations(tmp_path: Path) -> None:
    spec = Spec(VECTOR, ACTIONS["box"], 1, "Any-v0")
    agent = policy_agent(spec, Net(hidden=(16,), output_gain=1.0, normalize_obs=True))
    plain = agent.act(seen(VECTOR, 9), np.ones(9, bool), None, CLOCK, explore=False).action
    norm: Any = agent.network.encoder.norm.norm
    norm.update(torch.randn(500, 5) * 7 + 3, torch.ones(500))
    assert not np.allclose(plain, agent.act(seen(VECTOR, 9), np.ones(9, bool), None, CLOCK, explore=False).action)
    assert_same_actions(agent, export(agent, spec, tmp_path), spec.obs)


@pytest.mark.parametrize("values", [False, True], ids=["policy", "values"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_export_keeps_and_resets_memory(cell: Any, values: bool, tmp_path: Path) -> None:
    torch.manual_seed(1)
    spec = Spec(VECTOR, ACTIONS["discrete" if values else "box"], 1, "Any-v0")
    agent: Any = (
        MemoryGreedy(RecurrentQ(spec, NET, cell, 8, dueling=True), constant(0.1), Seeds(1))
        if values
        else MemoryAgent(RecurrentPolicy(spec, NET, cell, 8), Seeds(1))
    )
    restored = export(agent, spec, tmp_path)
    mine = agent.initial(50)
    theirs = restored.initial(50)
    generator = np.random.default_rng(2)
    for _ in range(200):
        obs = generator.normal(size=(50, 5)).astype(np.float32)
        first = generator.random(50) < 0.1
        acts = agent.act(obs, first, mine, CLOCK, explore=False), restored.act(obs, first, theirs, CLOCK)
        np.testing.assert_allclose(acts[0].action, acts[1].action, rtol=0, atol=1e-5)
        mine, theirs = (act.recurrent_state for act in acts)


@for_each("space", [
        spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3], start=[1, -1]), spaces.MultiBinary([2, 2]), BOUNDED,
        spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Tuple((spaces.Discrete(2), BOUNDED)),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (1,), np.float32)}), OBSERVATIONS["parts"],
    ])  # fmt: skip
def test_spaces_round_trip_through_json(space: spaces.Space[Any]) -> None:
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space


def test_to_env_action_converts_canonical_actions() -> None:
    own = spaces.Tuple((spaces.Discrete(3, start=7), spaces.Dict({"x": BOUNDED})))
    gear, parts = to_env_action(own, np.array([[2, 0.5, -1], [0, -3, 1]], np.float32))
    assert gear.tolist() == [9, 7]
    np.testing.assert_array_equal(parts["x"], np.array([[1, 0], [-2, 10]], np.float32))


def test_to_env_action_adds_the_bounds_of_integer_boxes() -> None:
    """Such a Box can have any number of dimensions; its canonical actions are a vector of choices."""
    own = spaces.Box(np.array([[[-1], [2]]]), np.array([[[3], [120]]]), dtype=np.int8)
    action = np.array([[4, 0], [1, 118]])
    expected = np.array([[[[3], [2]]], [[[0], [120]]]], np.int8)
    both = to_env_action(spaces.Dict({"x": own, "y": spaces.Discrete(9)}), np.hstack([action, [[5], [6]]]))
    for found in (to_env_action(own, action), both["x"]):
        np.testing.assert_array_equal(found, expected)
        assert all(own.contains(row) for row in found)


def test_existing_or_changed_exports_raise(tmp_path: Path) -> None:
    spec = Spec(VECTOR, ACTIONS["discrete"], 1, "Any-v0")
    folder = write(tmp_path / "policy", policy_agent(spec), DetachedEnv(spec, spec.action), {"wrap": []})
    with pytest.raises(UsageError, match="exists already; name another place"):
        write(folder, policy_agent(spec), DetachedEnv(spec, spec.action), {"wrap": []})
    content = bytearray((folder / TENSORS).read_bytes())
    content[-1] ^= 1
    (folder / TENSORS).write_bytes(content)
    with pytest.raises(RlplugError, match="has changed since it was written"):
        read(folder)


@pytest.mark.parametrize("exists", [False, True])
def test_directory_of_a_killed_export_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """Each kill once left a hidden directory, and an error during its deletion failed a complete export."""
    out = tmp_path / "policy"
    if exists:
        out.mkdir()
    hidden = (out if exists else tmp_path) / ".policy.tmp"
    (hidden / "policy").mkdir(parents=True)
    (hidden / "policy" / "partial").write_bytes(b"1")
    synced: list[str] = []
    fsync = os.fsync

    def record(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", record)
    with new_directory(out) as folder:
        folder.mkdir()
        (folder / "complete").write_bytes(b"2")
    assert [path.name for path in tmp_path.rglob("*")] == ["policy", "complete"]
    assert [Path(path).name for path in synced] == ["complete", "policy", tmp_path.name]


FROM_FIVE = spaces.Discrete(3, start=5)


@pytest.mark.parametrize(
    "space",
    [
        FROM_FIVE,
        spaces.MultiDiscrete([2, 3], start=[4, -7]),
        spaces.Box(2, 3, (2,), np.int64),
        spaces.Dict({"kind": FROM_FIVE, "at": VECTOR}),
    ],
    ids=str,
)
def test_trace_uses_valid_observations(space: spaces.Space[Any], tmp_path: Path) -> None:
    spec = Spec(space, ACTIONS["discrete"], 1, "Any-v0")
    policy = policy_agent(spec)
    example = dict(zip(leaves(seen(space, 2)), Flat(greedy(policy), spec.obs).example(), strict=True))
    for name, part in leaves(space.spaces if isinstance(space, spaces.Dict) else space).items():
        assert all(part.contains(row) for row in example[name].numpy()), name
    folder = write(tmp_path / "policy", policy, DetachedEnv(spec, spec.action), {"wrap": []}, torchscript=True)
    assert {path.name for path in folder.iterdir()} == {JSON, TENSORS, "policy.pt"}


def test_unused_keys_are_not_inputs() -> None:
    """The trace reads the number of rows from the first key. If a module reads it from a key, this key is an input."""

    class Plan(nn.Module):
        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

        def forward(self, obs: dict[str, Tensor]) -> Tensor:
            return obs["b"] + torch.zeros(obs[self.key].shape[0], 2)

    space = spaces.Dict({"a": VECTOR, "b": spaces.Box(-1, 1, (2,), np.float32)})
    for key, names in (("b", ["obs.b"]), ("a", ["obs.a", "obs.b"])):
        flat, graph, _ = trace_policy(Greedy(Plan(key), lambda action: action), space)
        assert flat.names == graph["inputs"] == names


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_failed_export_leaves_no_files(exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec(VECTOR, ACTIONS["discrete"], 1, "Any-v0")
    folder = tmp_path / "policy"
    if exists:
        folder.mkdir()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(formats, "write_torchscript", _fail)
    with pytest.raises(RuntimeError, match="torch has no room"):
        write(folder, policy_agent(spec), DetachedEnv(spec, spec.action), {"wrap": []}, "A policy.", torchscript=True)
    assert sorted(tmp_path.rglob("*")) == before
    write(folder, policy_agent(spec), DetachedEnv(spec, spec.action), {"wrap": []}, "A policy.")
    assert {path.name for path in tmp_path.rglob("*")} == {"policy", JSON, TENSORS, "README.md"}


def _fail(*_: object) -> None:
    raise RuntimeError("torch has no room")


@pytest.mark.parametrize(
    "name", ["aten.from_file.default", "aten.save.default", "os.system", "operator.call", "aten.x.y"]
)
def test_program_calls_only_core_operations(name: str, tmp_path: Path) -> None:
    with pytest.raises(RlplugError, match="not one of torch's core operations"):
        operation(name)
    spec = Spec(VECTOR, ACTIONS["discrete"], 1, "Any-v0")
    folder = write(tmp_path / "policy", policy_agent(spec), DetachedEnv(spec, spec.action), {"wrap": []})
    content = json.loads((folder / JSON).read_bytes())
    content["program"]["steps"][0][1] = name
    (folder / JSON).write_text(json.dumps(content))
    with pytest.raises(RlplugError, match="not one of torch's core operations"):
        read(folder)


def test_agent_without_an_export_raises(tmp_path: Path) -> None:
    spec = Spec(VECTOR, ACTIONS["discrete"], 1, "Any-v0")
    with pytest.raises(UsageError, match=r"a object cannot be exported; its author can give it a method exported\(\)"):
        write(tmp_path / "policy", object(), DetachedEnv(spec, spec.action), {})  # type: ignore[arg-type]
