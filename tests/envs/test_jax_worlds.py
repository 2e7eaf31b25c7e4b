"""JAX environments: transitions if their packages are installed, and messages and spaces."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rlplug_core.errors import MissingPackage, UnknownEnv, UsageError
from rlplug_core.testing.host_reads import HostReads
from rlplug_envs.families.jax_worlds import Brax, Gymnax, Playground, gymnasium_space
from rlplug_envs.families.jumanji import Jumanji, as_dicts

needs_playground = pytest.mark.skipif(
    importlib.util.find_spec("mujoco_playground") is None, reason="MuJoCo Playground is not installed"
)
needs_jumanji = pytest.mark.skipif(importlib.util.find_spec("jumanji") is None, reason="Jumanji is not installed")
needs_gymnax = pytest.mark.skipif(importlib.util.find_spec("gymnax") is None, reason="gymnax is not installed")


def test_spaces_become_gymnasium_spaces() -> None:
    named = {name: type(name, (), {}) for name in ("Discrete", "Box", "Dict")}
    discrete, box, other = (kind() for kind in named.values())
    discrete.n = np.int32(3)  # type: ignore[attr-defined]
    box.low = -1.0  # type: ignore[attr-defined]
    box.high = np.float32(2)  # type: ignore[attr-defined]
    box.shape = (2,)  # type: ignore[attr-defined]
    assert gymnasium_space(discrete, "gymnax/One") == Discrete(3)
    assert gymnasium_space(box, "gymnax/One") == Box(-1, 2, (2,))
    with pytest.raises(UsageError, match="gymnax/One has a space of the type Dict"):
        gymnasium_space(other, "gymnax/One")


@pytest.mark.parametrize("provider", [Gymnax, Brax, Playground, Jumanji])
def test_missing_package_names_the_install_command(provider: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("rlplug_envs.families.jax_worlds.import_module", refuse)
    family = provider("cuda").on_device("cpu")
    assert family.device == "cpu"
    with pytest.raises(MissingPackage, match=rf"install \'rlplug-envs\[{family.name}\]\'"):
        family.make(f"{family.name}/any", 2)
    assert f"{family.name}/" in next(iter(family.ids()))
    with pytest.raises(UsageError, match="takes no argument 'size'"):
        family.with_arguments({"size": 3})


@needs_gymnax
def test_gymnax_matches_gymnasium_and_resumes() -> None:
    env: Any = Gymnax().make("gymnax/CartPole-v1", 16)
    fresh = Gymnax().make("gymnax/CartPole-v1", 16)
    single: Any = gymnasium.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    now = env.reset(1)
    ends = 0
    for step in range(80):
        action: Any = torch.randint(0, 2, (16,), generator=generator)
        single.state = now.obs[5].numpy().astype(np.float64)
        single.steps_beyond_terminated = None
        if step == 40:
            fresh.load_state_dict(env.state_dict())
        now = env.step(action)
        obs, _, terminated, _, _ = single.step(int(action[5]))
        np.testing.assert_allclose(now.final_obs[5].numpy(), obs, atol=1e-5)
        assert bool(now.terminated[5]) == terminated
        ends += int(now.terminated.sum())
        if step >= 40:
            other = fresh.step(action)
            assert torch.equal(other.obs, now.obs)
            assert torch.equal(other.terminated, now.terminated)  # type: ignore[arg-type]
    assert ends > 16
    with HostReads() as reads:
        env.step(action)
    assert reads.counts == {}
    assert env.env._move._cache_size() == 1  # JAX compiled the step once for both resets and steps
    with pytest.raises(UnknownEnv, match="gymnax/CartPole-v1"):
        Gymnax().make("gymnax/CartPole-v2", 2)


@needs_gymnax
def test_gymnax_shares_memory_and_truncates() -> None:
    adapter: Any = Gymnax().make("gymnax/Pendulum-v1", 4)
    assert adapter.spec.limit == 200
    adapter.limit(3)
    adapter.reset(0)
    rows = adapter.env
    assert torch.from_dlpack(rows.age).data_ptr() == rows.age.unsafe_buffer_pointer()
    steps = [adapter.step(torch.zeros((4, 1))) for _ in range(4)]
    assert [bool(now.truncated.all()) for now in steps] == [False, False, True, False]
    assert [int(age) for age in rows.age] == [1, 1, 1, 1]


@needs_playground
@pytest.mark.filterwarnings("ignore:JAXopt:DeprecationWarning")
def test_playground_truncates_and_resumes() -> None:
    env: Any = Playground().make("playground/CartpoleBalance", 2)
    assert env.spec.limit == 1_000
    env.limit(4)
    first = env.reset(1)
    assert first.obs.shape == (2, 5)
    action = torch.full((2, 1), 0.5)
    steps = [env.step(action) for _ in range(2)]
    saved = env.state_dict()
    steps += [env.step(action) for _ in range(3)]
    assert [bool(now.truncated.all()) for now in steps] == [False, False, False, True, False]
    assert not torch.equal(steps[3].final_obs, steps[3].obs)
    env.load_state_dict(saved)
    again = [env.step(action) for _ in range(3)]
    assert all(torch.equal(now.obs, then.obs) for now, then in zip(steps[2:], again, strict=True))


@needs_jumanji
@pytest.mark.filterwarnings("ignore")
def test_jumanji_masks_actions_and_resumes() -> None:
    """The actions of Minesweeper are pairs with one common mask."""
    jax = pytest.importorskip("jax")
    env = Jumanji().make("jumanji/Minesweeper-v0", 8)
    fresh = Jumanji().make("jumanji/Minesweeper-v0", 8)
    assert env.spec.action == Discrete(100)
    now = env.reset(1)
    assert set(now.obs) == {"board", "action_mask", "num_mines", "step_count"}
    generator = torch.Generator().manual_seed(0)
    ends = 0
    for step in range(20):
        mask = now.obs["action_mask"]
        hidden = (now.obs["board"] == -1).reshape(8, 100)
        assert mask.dtype is torch.bool
        assert torch.equal(mask, hidden)
        action: Any = torch.multinomial(mask.float(), 1, generator=generator).squeeze(1)
        if step == 10:
            fresh.load_state_dict(env.state_dict())
        now = env.step(action)
        ends += int(now.terminated.sum())
        cells = now.final_obs["board"].reshape(8, 100).gather(1, action.unsqueeze(1))
        assert bool((cells >= 0).all())  # the cell of the action is open
        assert bool((now.final_obs["step_count"] >= 1).all())
        if step >= 10:
            other = fresh.step(action)
            assert torch.equal(other.obs["board"], now.obs["board"])
            assert torch.equal(other.reward, now.reward)  # type: ignore[arg-type]
    assert 0 < ends < 160
    with HostReads() as reads:
        env.step(action)
    assert reads.counts == {}
    # PacMan-v1 gives arrays that are the same in all episodes: outside of `jit`, an array has a `__dict__`.
    state: Any = SimpleNamespace(places=jax.numpy.zeros((4, 2)), player=SimpleNamespace(x=jax.numpy.int32(3)))
    parts = as_dicts(state)
    assert parts["places"].shape == (4, 2)
    assert parts["player"]["x"].tolist() == [3.0]
    with pytest.raises(UsageError, match="gives a reward to each of its agents"):
        Jumanji().make("jumanji/Connector-v3", 2)
