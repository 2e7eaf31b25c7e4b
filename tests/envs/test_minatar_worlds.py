"""MinAtar games in torch have the transitions of the package `minatar`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.arrays import DeviceGenerator
from rlplug_core.testing.host_reads import HostReads
from rlplug_envs.families.tensor import Tensors
from rlplug_envs.tensors.grid import sticky_action

#: Vertical and horizontal speed of each direction of the package.
SPEEDS = [(-1, -1), (-1, 1), (1, 1), (1, -1)]
STEPS = 4_000


@pytest.fixture(scope="module")
def minatar() -> Any:
    """The package; it imports seaborn, which takes longer than these tests."""
    return pytest.importorskip("minatar")


def of_breakout(game: Any) -> dict[str, Any]:
    return {
        "ball": [game.ball_y, game.ball_x],
        "before": [game.last_y, game.last_x],
        "speed": SPEEDS[game.ball_dir],
        "paddle": game.pos,
        "bricks": game.brick_map == 1,
        "struck": game.strike,
    }


def of_invaders(game: Any) -> dict[str, Any]:
    return {
        "cannon": game.pos,
        "aliens": game.alien_map == 1,
        "shots": game.f_bullet_map == 1,
        "alien_shots": game.e_bullet_map == 1,
        "direction": game.alien_dir,
        "interval": game.enemy_move_interval,
        "until_move": game.alien_move_timer,
        "until_alien_shot": game.alien_shot_timer,
        "until_shot": game.shot_timer,
    }


def choose_action(state: dict[str, Any], random: np.random.Generator) -> int:
    """Follow the ball or avoid bullets; 15 % of actions are random."""
    if random.random() < 0.15:
        return int(random.integers(4))
    if "ball" in state:
        x = state["ball"][1]
        paddle = state["paddle"]
        if x == paddle:
            return 0
        return 2 if x > paddle else 1
    column = state["alien_shots"][5:, state["cannon"]].any()
    return 1 + int(random.integers(2)) if column else 3


#: By our name: the package's name, the function that reads its state, and the letters of our actions.
GAMES: dict[str, tuple[str, Callable[[Any], dict[str, Any]], str]] = {
    "MinAtar-Breakout-v1": ("breakout", of_breakout, "nlrn"),
    "MinAtar-SpaceInvaders-v1": ("space_invaders", of_invaders, "nlrf"),
}


def rows_of(states: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array([state[name] for state in states])) for name in states[0]}


@pytest.mark.parametrize("name", GAMES)
def test_transitions_match_the_package(minatar: Any, name: str) -> None:
    game, state_of, letters = GAMES[name]
    env = minatar.Environment(game, sticky_action_prob=0.0)
    env.seed(0)
    env.reset()
    random = np.random.default_rng(0)
    before = []
    actions = []
    after = []
    results = []
    for _ in range(STEPS):
        before.append({key: np.copy(value) for key, value in state_of(env.env).items()})
        action = choose_action(before[-1], random)
        reward, terminal = env.act("nlurdf".index(letters[action]))
        after.append({key: np.copy(value) for key, value in state_of(env.env).items()})
        actions.append(0 if action == 3 and letters[3] == "n" else action)
        results.append((reward, terminal, env.state()))
        if terminal:
            env.reset()
            if game == "breakout":  # so that some walls are broken completely
                env.env.brick_map *= random.random((10, 10)) < 0.1
    world: Any = Tensors().make(f"tensor/{name}", STEPS).env  # type: ignore[attr-defined]
    world.sticky = 0.0
    world.reset(seed=0)
    rows = rows_of(before) | {"action": torch.zeros(STEPS, dtype=torch.int64)}
    moved, reward, ended = world.advance(rows, torch.tensor(actions), world.draw)
    rewards, ends, observations = (np.array(column) for column in zip(*results, strict=True))
    assert rewards.sum() > 100
    assert ends.sum() > 5
    # Both games continue without an end: with a new wall or a faster wave.
    targets = "bricks" if "bricks" in before[0] else "aliens"
    assert sum(later[targets].sum() > now[targets].sum() for now, later in zip(before, after, strict=True)) > 1
    running = ~ends  # the package does not update positions at the end of an episode
    for key, expected in rows_of(after).items():
        np.testing.assert_array_equal(moved[key].numpy()[running], expected.numpy()[running], key)
    np.testing.assert_array_equal(reward.numpy(), rewards)
    np.testing.assert_array_equal(ended.numpy(), ends)
    np.testing.assert_array_equal(world.observe(moved).numpy()[running], observations[running])


@pytest.mark.parametrize("name", GAMES)
def test_first_states_match_the_package(minatar: Any, name: str) -> None:
    game, state_of, _ = GAMES[name]
    expected = set()
    for seed in range(20):
        env = minatar.Environment(game)
        env.seed(seed)
        env.reset()
        expected.add(str([(key, np.asarray(value).tolist()) for key, value in state_of(env.env).items()]))
    world: Any = Tensors().make(f"tensor/{name}", 40).env  # type: ignore[attr-defined]
    world.reset(seed=0)
    found = {
        str([(key, rows[row].tolist()) for key, rows in world.rows.items() if key != "action"]) for row in range(40)
    }
    assert found == expected


def test_sticky_actions_repeat_the_last_action() -> None:
    draw = DeviceGenerator(0, torch.device("cpu"))
    chosen = torch.ones(10_000, dtype=torch.int64)
    last = torch.full((10_000,), 2)
    with HostReads() as reads:
        actions = sticky_action(chosen, last, 0.1, draw)
    assert reads.counts == {}
    assert 900 < int((actions == 2).sum()) < 1_100
