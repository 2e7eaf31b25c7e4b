"""Worlds in torch have Gymnasium's transitions, and equal resets in every autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

from rlplug_core.arrays import to_host
from rlplug_core.errors import BadEnv, PluginError
from rlplug_core.plugins.device_episodes import read
from rlplug_core.testing.host_reads import HostReads
from rlplug_envs.families.tensor import WORLDS, Tensors
from rlplug_envs.tensors.adapter import TensorAdapter, is_tensor_env

ROWS = 64
#: The worlds of Gymnasium; the others have their own tests.
CLASSIC = sorted(name for name in WORLDS if not name.startswith("MinAtar-"))


def push(env: Any) -> Any:
    """The action that adds to the last velocity in the state."""
    forwards = env.state[-1] > 0
    if isinstance(env.action_space, Box):
        return env.action_space.high if forwards else env.action_space.low
    return (env.action_space.n - 1) if forwards else 0


@pytest.mark.parametrize("name", CLASSIC)
def test_transitions_match_gymnasium(name: str) -> None:
    """From states of Gymnasium's episodes with random and pushing actions."""
    adapter: Any = Tensors().make(f"tensor/{name}", ROWS)
    world = adapter.env
    env: Any = gymnasium.make(name).unwrapped
    env.action_space.seed(0)
    env.reset(seed=0)
    before = []
    actions = []
    after = []
    limit = 100 if name == "Pendulum-v1" else 400
    for step in range(40 * ROWS):
        action = push(env) if step // 400 % 2 and name != "CartPole-v1" else env.action_space.sample()
        state = np.array(env.state, dtype=np.float32)
        env.state = state.astype(np.float64)
        obs, reward, terminated, _, _ = env.step(action)
        before.append(state)
        actions.append(action)
        after.append((obs, reward, terminated))
        if terminated or step % limit == limit - 1:
            env.reset()
    world.reset(seed=0)
    for start in range(0, len(before), ROWS):
        block = slice(start, start + ROWS)
        world.rows = {"state": torch.from_numpy(np.array(before[block]))}
        world.age.zero_()
        _, reward, terminated, truncated, info = world.step(torch.from_numpy(np.array(actions[block])))
        obs, gain, ended = (np.array(column) for column in zip(*after[block], strict=True))
        np.testing.assert_allclose(info["final_obs"].numpy(), obs, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(reward.numpy(), gain, atol=1e-5, rtol=1e-5)
        assert terminated.numpy().tolist() == ended.tolist()
        assert not truncated.any()
    assert any(ended for _, _, ended in after) or name == "Pendulum-v1"


@pytest.mark.parametrize("name", CLASSIC)
def test_starts_and_spaces_match_gymnasium(name: str) -> None:
    adapter: Any = Tensors().make(f"tensor/{name}", 4_096)
    env: Any = gymnasium.make(name)
    assert adapter.env.single_observation_space == env.observation_space
    assert adapter.env.single_action_space == env.action_space
    assert adapter.spec.limit == env.spec.max_episode_steps
    ours = to_host(adapter.reset(1).obs)
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(1_000)])
    np.testing.assert_allclose(ours.min(0), theirs.min(0), atol=0.02)
    np.testing.assert_allclose(ours.max(0), theirs.max(0), atol=0.02)
    assert np.array_equal(ours, to_host(adapter.reset(1).obs))
    assert not np.array_equal(ours, to_host(adapter.reset(2).obs))
    assert len(np.unique(ours, axis=0)) > 0.99 * len(ours)


class Counting:
    """Counts the steps of episodes; row r has r + 2 steps and is truncated if r is odd, else terminated."""

    single_observation_space: Any = Dict({"count": Box(0, 100, (1,))})
    single_action_space: Any = Discrete(2, start=1)
    num_envs = 4
    device = "cpu"

    def __init__(self, mode: AutoresetMode, final: str = "final_obs") -> None:
        self.metadata = {"autoreset_mode": mode}
        self.final = final
        self.ended = torch.zeros(4, dtype=torch.bool)
        self.actions: list[list[int]] = []

    def obs(self) -> Any:
        return {"count": self.count.clone().double().unsqueeze(1)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        mask = options["reset_mask"] if options else torch.ones(4, dtype=torch.bool)
        self.count = torch.where(mask, 0, self.count) if options else torch.zeros(4, dtype=torch.int64)
        return self.obs(), {}

    def step(self, action: torch.Tensor) -> Any:
        self.actions.append(action.tolist())
        mode = self.metadata["autoreset_mode"]
        again = self.ended if mode is AutoresetMode.NEXT_STEP else torch.zeros(4, dtype=torch.bool)
        self.count = torch.where(again, 0, self.count + 1)
        self.ended = self.count >= torch.arange(2, 6)
        odd = torch.arange(4) % 2 == 1
        info: dict[str, Any] = {"success": self.count == 3}
        if mode is AutoresetMode.SAME_STEP and self.ended.any() and self.final:
            info[self.final] = self.obs()
        reward = self.count.double()
        if mode is AutoresetMode.SAME_STEP:
            self.count = torch.where(self.ended, 0, self.count)
        return self.obs(), reward, self.ended & ~odd, self.ended & odd, info


MODES = [
    (AutoresetMode.SAME_STEP, "final_obs"),
    (AutoresetMode.SAME_STEP, "final_observation"),
    (AutoresetMode.DISABLED, ""),
    (AutoresetMode.NEXT_STEP, ""),
]


@pytest.mark.parametrize(("mode", "final"), MODES)
def test_all_modes_give_the_same_transitions(mode: AutoresetMode, final: str) -> None:
    adapter = TensorAdapter(lambda: Counting(mode, final), "counting")
    adapter.reset(0)
    transitions: list[list[tuple[float, bool, bool]]] = [[], [], [], []]
    log = []
    opens = adapter.reset(0).is_first
    for step in range(1, 20):
        now = adapter.step(torch.zeros(4, dtype=torch.int64))  # type: ignore[arg-type]
        log.append((step, now.episodes))
        for row in range(4):
            if now.valid[row]:
                ends = bool(now.terminated[row]), bool(now.truncated[row])
                transitions[row].append((float(now.final_obs["count"][row]), *ends))
                assert now.final_obs["count"].dtype is torch.float32
                assert float(now.reward[row]) == float(now.final_obs["count"][row])
        same = mode is not AutoresetMode.NEXT_STEP
        ended = now.terminated | now.truncated
        assert torch.equal(now.is_first, ended) if same else torch.equal(now.is_first, ~now.valid)  # type: ignore[arg-type]
        assert torch.equal(now.obs["count"][now.is_first], torch.zeros(int(now.is_first.sum()), 1))
        assert now.count == int(now.valid.sum())
    assert opens.all()
    for row in range(4):
        length = row + 2
        episode_steps = [
            (float(count), count == length and row % 2 == 0, count == length and row % 2 == 1)
            for count in range(1, length + 1)
        ]
        assert transitions[row][: 2 * length] == episode_steps * 2
    episodes = [episode for _, episode in read(log)]  # type: ignore[arg-type]
    assert {(episode.row, episode.length, episode.total, episode.success) for episode in episodes} == {
        (row, row + 2, sum(range(row + 3)), row == 1) for row in range(4)
    }
    assert adapter.env.actions[0] == [1, 1, 1, 1]  # type: ignore[attr-defined]
    assert adapter.spec.inexact == "counting: it has no state_dict"


class Simulator(Counting, VectorEnv[Any, Any, Any]):
    """A vector like ManiSkill's: after a reset, the `info` of the last step is in `final_info`."""

    def __init__(self) -> None:
        super().__init__(AutoresetMode.SAME_STEP, "final_observation")
        self.spec = None

    def step(self, action: torch.Tensor) -> Any:
        *results, info = super().step(action)
        last = {"success": info["success"], "cost": results[1].float(), "episode": {"return": results[1]}}
        if not self.ended.any():
            return *results, last
        final = {"final_observation": info["final_observation"], "_final_observation": self.ended.clone()}
        after_reset = {"cost": torch.zeros(4), "elapsed_steps": self.count}
        return *results, {**after_reset, **final, "final_info": last, "_final_info": self.ended.clone()}


def test_success_and_signals_come_from_final_info() -> None:
    adapter = TensorAdapter(Simulator, "simulator")
    assert is_tensor_env(adapter.env)
    adapter.reset(0)
    log = []
    for step in range(1, 11):
        now = adapter.step(torch.zeros(4, dtype=torch.int64))  # type: ignore[arg-type]
        log.append((step, now.episodes))
        cost: Any = adapter.info_tensor("cost")
        ended: Any = now.terminated | now.truncated
        expected = now.reward if not ended.any() else torch.where(ended, now.reward, 0)  # type: ignore[call-overload]
        assert torch.equal(cost, expected)
        assert adapter.info("cost") == cost.tolist()
    assert adapter.info("nothing") == [None] * 4
    assert "elapsed_steps" in adapter.info_names()
    assert {(episode.row, episode.success) for _, episode in read(log)} == {(row, row == 1) for row in range(4)}  # type: ignore[arg-type]


def test_missing_final_obs_raises() -> None:
    adapter = TensorAdapter(lambda: Counting(AutoresetMode.SAME_STEP, ""), "counting")
    adapter.reset(0)
    log = [(0, adapter.step(torch.zeros(4, dtype=torch.int64)).episodes) for _ in range(3)]  # type: ignore[arg-type]
    with pytest.raises(BadEnv, match="final_obs"):
        read(log)  # type: ignore[arg-type]


def test_reading_episodes_finds_values_that_are_not_finite() -> None:
    adapter: Any = Tensors().make("tensor/CartPole-v1", 8)
    adapter.reset(0)
    adapter.env.rows["state"][3, 1] = torch.nan
    log = [(0, adapter.step(torch.zeros(8, dtype=torch.int64)).episodes)]
    adapter.env.reset(seed=0)
    log += [(0, adapter.step(torch.zeros(8, dtype=torch.int64)).episodes)]
    with pytest.raises(BadEnv, match="not finite"):
        read(log)


def test_environment_that_returns_arrays_raises() -> None:
    class Arrays(Counting):
        def obs(self) -> Any:
            return {"count": self.count.numpy()}

    adapter = TensorAdapter(lambda: Arrays(AutoresetMode.SAME_STEP), "arrays")
    with pytest.raises(BadEnv, match="declares the device cpu, but its observation is of type ndarray"):
        adapter.reset(0)


def test_agent_that_returns_arrays_raises() -> None:
    adapter: Any = Tensors().make("tensor/Pendulum-v1", 2)
    adapter.reset(0)
    with pytest.raises(PluginError, match=r"takes actions as tensors on cpu, and the agent .* of type ndarray"):
        adapter.step(np.zeros((2, 1), np.float32))


@pytest.mark.parametrize("name", WORLDS)
def test_steps_do_not_read_from_the_device(name: str) -> None:
    adapter: Any = Tensors().make(f"tensor/{name}", 8)
    adapter.reset(0)
    shape = (8, *adapter.spec.action.shape)
    with HostReads() as reads:
        steps = [adapter.step(torch.zeros(shape, dtype=torch.int64)) for _ in range(3)]
    assert reads.counts == {}
    assert steps[0].obs is not steps[2].obs


@pytest.mark.parametrize("name", WORLDS)
def test_row_0_is_rendered(name: str) -> None:
    pytest.importorskip("pygame")
    adapter: Any = Tensors().make_shown(f"tensor/{name}", "rgb_array")
    frames: list[Any] = []
    adapter.show(lambda opens, draw: frames.append((opens, draw())))
    adapter.reset(0)
    for _ in range(14):
        adapter.step(torch.zeros((1, *adapter.spec.action.shape), dtype=torch.int64))
    assert [opens for opens, _ in frames][:6] == [True, *[False] * 5]
    assert all(frame.shape[2] == 3 and frame.dtype == np.uint8 for _, frame in frames)
    assert not all(np.array_equal(frames[0][1], frame) for _, frame in frames)
