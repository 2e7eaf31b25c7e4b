"""The same seed gives the same run, other seeds give other runs, and evaluation changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlplug_core.runs.api import train
from rlplug_core.runs.checkpoint import Checkpoints

#: Algorithm, environment and options of a run that uses all its random sources.
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a2c": ("a2c", "Continuous", {"num_envs": 2}),
    "ppo": ("ppo", "Masked", {"num_envs": 2, "n_steps": 32, "batch_size": 16, "n_epochs": 2}),
    "dqn": ("dqn", "Masked", {"num_envs": 2, "learning_starts": 50, "batch_size": 16}),
    "rainbow-iqn": (
        "iqn",
        "Masked",
        {
            "num_envs": 2,
            "learning_starts": 50,
            "batch_size": 16,
            "noisy": "factorized",
            "priority.alpha": 0.5,
            "n_step": 3,
            "double": True,
            "dueling": True,
            "net.hidden": [16, 16],
        },
    ),
    "a3c-inline": ("a3c", "Chain", {"inline": True, "workers": 2, "num_envs": 2, "n_steps": 5}),
}


def outcome(train_runner: Callable[..., Any], name: str, **options: Any) -> tuple[torch.Tensor, list[Any], list[Any]]:
    """Return final weights, all episodes and the last observation."""
    algorithm, env, own = RUNS[name]
    runner = train_runner(algorithm, env, **{"total_timesteps": 600, **own, **options})
    actor = runner.workers[0].actor if name == "a3c-inline" else runner.actor
    episodes = [
        (steps, worker, episode.row, episode.total, episode.length) for steps, worker, episode in runner.episodes()
    ]
    obs = actor.obs["obs"] if isinstance(actor.obs, dict) else actor.obs
    return runner.snapshot().optimizers[0].flat.clone(), episodes, obs.tolist()


#: The kit checks the seeds of every algorithm.
PLAIN = ("a2c", "a3c-inline")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in PLAIN else pytest.mark.slow) for name in RUNS])
def test_seed_determines_the_run(train_runner: Callable[..., Any], name: str) -> None:
    """The default is seed 0; seed 1 gives another run."""
    zero = outcome(train_runner, name, seed=0)
    again = outcome(train_runner, name, seed=0)
    one = outcome(train_runner, name, seed=1)
    default = outcome(train_runner, name)
    for first, second in ((zero, again), (one, default)):
        assert torch.equal(first[0], second[0])
        assert first[1:] == second[1:]
        assert first[1]
    assert not torch.equal(zero[0], one[0])
    assert zero[1] != one[1]
    assert_rows_differ(default[1], 4 if name == "a3c-inline" else 2)


def assert_rows_differ(episodes: list[Any], count: int) -> None:
    """Assert that no two rows of any workers have the same episodes."""
    lives: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for _, worker, row, total, length in episodes:
        lives.setdefault((worker, row), []).append((total, length))
    assert len(lives) == count
    stories = [tuple(life[:20]) for life in lives.values()]
    assert len(set(stories)) == len(stories)


@pytest.mark.parametrize("name", RUNS)
def test_evaluation_changes_nothing(tmp_path: Path, name: str) -> None:
    """Weights, buffer, environments and generators are the same with many evaluations as with only the last."""
    algorithm, env, own = RUNS[name]
    states = []
    for every in (25, 10**6):
        options = {
            "total_timesteps": 300, "eval_every": every, "eval_episodes": 3, "checkpoint_every": 10**6,
            "final_eval_episodes": 0, **own,
        }  # fmt: skip
        run = train(algorithm, f"rlplug_core.testing.envs:{env}", options, out=tmp_path, name=str(every), hooks=False)
        _, components, _, _ = Checkpoints(run.path / "checkpoints").load(("final",))
        del components["events"]
        states.append(flat(components))
    assert states[0].keys() == states[1].keys()
    different = [name for name in states[0] if states[0][name] != states[1][name]]
    assert different == []


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of a state by path; arrays as bytes."""
    if isinstance(tree, dict):
        return {name: leaf for key in tree for name, leaf in flat(tree[key], f"{path}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {name: leaf for i, part in enumerate(tree) for name, leaf in flat(part, f"{path}/{i}").items()}
    if isinstance(tree, torch.Tensor):
        return {path: tree.numpy().tobytes()}
    return {path: tree.tobytes() if hasattr(tree, "tobytes") else tree}
