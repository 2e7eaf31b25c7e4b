"""Many agents in one world: independent learners, self-play with ratings, a critic of the whole world."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlplug_algos.many_agents.group_buffer import GroupsBuffer, step_of_group
from rlplug_algos.many_agents.groups import groups
from rlplug_algos.many_agents.independent import GroupsAgent, Independent, IndependentConfig
from rlplug_algos.many_agents.league import FIRST_RATING, League
from rlplug_algos.many_agents.seats import SeatBuffer, Seats
from rlplug_algos.many_agents.world_state import state_space, world_state
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.learners import learner_of
from rlplug_core.runs.api import load, train
from rlplug_core.seeds import Seeds
from rlplug_core.types import Act, Spec, Step

WORLD = "rlplug_core.testing.multi_agent:Dilemma"
BOX = spaces.Box(-1, 1, (2,), np.float32)
NAMES = ("wolf_0", "wolf_1", "sheep_0")
#: Two worlds of two wolves, which move, and a sheep, which chooses.
MIXED = Spec(
    spaces.Dict({"wolf_0": BOX, "sheep_0": spaces.Discrete(5)}),
    spaces.Dict([("wolf_0", BOX), ("sheep_0", spaces.Discrete(3))]),
    6,
    "Field",
    agents=NAMES * 2,
    kinds=("wolf_0", "wolf_0", "sheep_0") * 2,
)
ALIKE = Spec(BOX, spaces.Discrete(2), 6, "Field", agents=NAMES * 2)


@pytest.mark.parametrize(
    ("spec", "words", "separate", "expected"),
    [
        (ALIKE, ("*=ppo",), False, {"all": ("ppo", (0, 1, 2))}),
        (ALIKE, ("*=ppo",), True, {name: ("ppo", (place,)) for place, name in enumerate(NAMES)}),
        (ALIKE, ("wolf=dqn,sheep=ppo",), False, {"wolf": ("dqn", (0, 1)), "sheep_0": ("ppo", (2,))}),
        (ALIKE, ("wolf_1=a2c", "*=ppo"), False, {"wolf_0-sheep_0": ("ppo", (0, 2)), "wolf_1": ("a2c", (1,))}),
        (
            replace(ALIKE, agents=("wolf_0", "wolf_1", "wolf_2", "wolf_3") * 2, num_envs=8),
            ("wolf_0=ppo", "wolf_1=ppo", "*=dqn"), False,
            {"wolf_0": ("ppo", (0,)), "wolf_1": ("ppo", (1,)), "wolf_2-wolf_3": ("dqn", (2, 3))},
        ),
        (MIXED, ("*=ppo",), False, {"wolf": ("ppo", (0, 1)), "sheep_0": ("ppo", (2,))}),
        (
            ALIKE, ("wolf=ppo:net.hidden=8,8,n_steps=4,sheep=dqn:gamma=0.9",), False,
            {"wolf": ("ppo:net.hidden=8,8,n_steps=4", (0, 1)), "sheep_0": ("dqn:gamma=0.9", (2,))},
        ),
    ],
)  # fmt: skip
def test_each_agent_has_the_first_algorithm_that_matches(spec: Any, words: Any, separate: bool, expected: Any) -> None:
    learner = groups(spec, words, separate)
    assert {one.name: (one.algorithm, one.places) for one in learner} == expected
    for group in learner:
        assert group.spec.num_envs == 2 * len(group.places)
        assert group.spec.agents == tuple(spec.agents[place] for place in group.places) * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("wolf=ppo",), "'sheep_0' of Field has no algorithm; add --agent 'sheep_0=ppo'"),
        (("cow=ppo",), "'cow=ppo' matches no agent; agents are wolf_0, wolf_1, sheep_0"),
    ],
)
def test_error_names_agents_without_an_algorithm(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        groups(ALIKE, words, False)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            "./file.py:Class",
            "'./file.py:Class' is not an installed algorithm, and an algorithm made of others",
        ),
        ("ppo:steps=3", "algorithm ppo has no option 'steps'"),
        ("pppo", "'pppo'.* did you mean 'ppo'"),
    ],
)
def test_unusable_algorithm_raises(algorithm: str, message: str) -> None:
    with pytest.raises(RlplugError, match=message):
        learner_of(algorithm, ALIKE, Context(Seeds(1)))


class Numbered:
    """Identifies itself: actions and memory are its number plus the rows."""

    def __init__(self, number: int, space: spaces.Space[Any]) -> None:
        self.number = number
        self.space = space

    def initial(self, num_envs: int) -> Any:
        return np.zeros((num_envs, 1)) if self.number else None

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        rows = np.arange(len(is_first))
        action = rows % 3 if isinstance(self.space, spaces.Discrete) else np.stack([rows, -rows], 1).astype(np.float32)
        memory = None if recurrent_state is None else recurrent_state + 1
        return Act(action, memory, {"seen": np.asarray(obs, np.float32).reshape(len(rows), -1)[:, 0]})


def test_central_critic_requires_simultaneous_agents() -> None:
    turns = replace(ALIKE, turns=True)
    with pytest.raises(UsageError, match=r"the agents of Field act in turn, .*; use independent or self-play instead"):
        learner_of("mappo", turns, Context(Seeds(1)))
    with pytest.raises(UsageError, match="act in turn"):
        Independent(turns, IndependentConfig(agent=("wolf=mappo", "sheep=ppo")), Context(Seeds(1)))
    learner_of("self-play:player=mappo", turns, Context(Seeds(1)))  # the only agent in each world


def test_each_group_sees_only_the_rows_of_its_agents() -> None:
    """Compare with a walk through the rows, one by one."""
    learner = groups(MIXED, ("*=ppo",), False)
    agents: Any = {one.name: Numbered(n, one.spec.action) for n, one in enumerate(learner)}
    agent = GroupsAgent(learner, agents, {one.name: 0.5 for one in learner})
    obs = {"wolf_0": np.arange(12, dtype=np.float32).reshape(6, 2), "sheep_0": np.arange(6)}
    first = np.array([1, 0, 0, 0, 1, 0], np.bool_)
    memory = agent.initial(6)
    act = agent.act(obs, first, memory, Clock(1))
    assert act.action.shape == (6, 3)
    ends = np.array([0, 0, 1, 0, 0, 0], np.bool_)
    step = Step(
        obs=obs,
        action=act.action,
        reward=np.arange(6, dtype=np.float32),
        next_obs=obs,
        terminated=ends,
        truncated=np.zeros(6, np.bool_),
        is_first=first,
        valid=np.array([1, 1, 1, 0, 1, 1], np.bool_),
        ended=True,
        extras=act.extras,
        recurrent_state=act.recurrent_state,
    )
    wolves, sheep = (step_of_group(step, one) for one in learner)
    for at, row in enumerate((0, 1, 3, 4)):
        assert wolves.obs[at].tolist() == obs["wolf_0"][row].tolist()
        assert wolves.action[at].tolist() == [at, -at]
        assert (wolves.reward[at], wolves.is_first[at], wolves.valid[at]) == (row, first[row], step.valid[row])
        assert wolves.extras["seen"][at] == obs["wolf_0"][row, 0]
    assert wolves.recurrent_state is None
    assert not wolves.ended
    assert sheep.action.dtype == np.int64
    assert (sheep.action.tolist(), sheep.obs.tolist(), sheep.ended) == ([0, 1], [2, 5], True)
    assert sheep.recurrent_state.tolist() == [[1], [1]]


SHORT = {"net.hidden": "16", "learning_rate": "0.01", "n_steps": "16", "batch_size": "64"}
WORDS = "ppo:" + ",".join(f"{name}={value}" for name, value in SHORT.items())


def test_two_learners_find_the_equilibrium_of_the_dilemma(tmp_path: Path) -> None:
    options = {"agent": [f"*={WORDS}"], "separate": True, "num_envs": 8, "total_timesteps": 12_000, "seed": 1}
    run = train("independent", WORLD, {**options, "eval_episodes": 4}, out=tmp_path, hooks=False)
    assert run.evaluate(episodes=8, checkpoint="final").by_agent == {"row": 4.0, "column": 4.0}
    policy = load(run, checkpoint="final")
    seen = np.eye(2, dtype=np.float32)
    assert policy(seen).tolist() == [1, 1]  # a world with both agents
    assert policy(seen[1]) == 1  # only the first agent


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [("independent", {"separate": True, "agent": ["*=a2c:{}"]}), ("independent", {"agent": ["*=a2c:{}"]}),
     ("self-play", {"player": "a2c:{}"})],
)  # fmt: skip
def test_annealed_learning_rate_is_that_of_the_start_of_the_rollout(algorithm: str, options: dict[str, Any]) -> None:
    """It falls with the env steps of the whole run, and each learner sees a part of them."""
    words = "anneal_lr=true,learning_rate=0.5,n_steps=8"
    named = dict(options)
    if algorithm == "self-play":
        named["player"] = options["player"].format(words)
    else:
        named["agent"] = [options["agent"][0].format(words)]
    total = 4 * 8 * 2 * 3  # rollouts, length, agents, worlds
    plan = Plan.make(algorithm, WORLD, {"num_envs": 3, "total_timesteps": total, **named})
    runner: Any = build(plan, Clock(total))
    learner = runner.learner
    owned = [learner.learner] if algorithm == "self-play" else list(learner.learners.values())
    used: list[float] = []
    for one in owned:
        one.optimizers[0].rule = RateRecorder(one.optimizers[0].rule, used)
    runner.run(lambda: None)
    assert list(dict.fromkeys(used)) == pytest.approx([0.5, 0.375, 0.25, 0.125])


class RateRecorder:
    """A rule that records its learning rates."""

    def __init__(self, rule: Any, used: list[float]) -> None:
        self.rule = rule
        self.used = used

    def start(self, parameters: Any) -> Any:
        return self.rule.start(parameters)

    def step(self, parameters: Any, gradient: Any, state: Any, lr: float) -> None:
        self.used.append(lr)
        self.rule.step(parameters, gradient, state, lr)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("independent", {"separate": True, "agent": ["*=dqn:random_steps=20,learning_starts=100"]}),
        ("self-play", {"player": "dqn:random_steps=20,learning_starts=100"}),
    ],
)
def test_random_steps_count_per_agent(algorithm: str, options: dict[str, Any]) -> None:
    """Two agents in three worlds make six env steps at a time; the learner of each agent makes three."""
    plan = Plan.make(algorithm, WORLD, {"num_envs": 3, "total_timesteps": 60, **options})
    runner: Any = build(plan, Clock(60))
    agent = runner.actor.agent
    own = agent.player if algorithm == "self-play" else next(iter(agent.agents.values()))
    seen: list[int] = []
    chance = own.chance

    def record(clock: Clock) -> Any:
        seen.append(clock.steps)
        return chance(clock)

    own.chance = record
    runner.run(lambda: None)
    assert seen == list(range(0, 30, 3))


def rollout_of(steps: int, cut: int) -> Rollout:
    """Return a rollout of two worlds of three agents; the first `cut` agents are truncated in the step before the last.

    Then the worlds reset: the next agent terminates in this step, and the third one was already absent.
    """
    buffer = RolloutBuffer(steps, 3)
    generator = np.random.default_rng(3)
    never = np.zeros(6, np.bool_)
    for at in range(steps):
        ends = np.full(6, cut > 0 and at == steps - 2)
        place = np.arange(6) % 3
        buffer.add(
            Step(
                obs=np.full((6, 2), 10 * at, np.float32) + np.arange(6, dtype=np.float32)[:, None],
                action=np.zeros(6, np.int64),
                reward=generator.normal(size=6).astype(np.float32),
                next_obs=np.full((6, 2), (99 if ends.any() else 10 * (at + 1)), np.float32)
                + np.arange(6, dtype=np.float32)[:, None],
                terminated=ends & (place == cut) & (place < 2),
                truncated=ends & (place < cut),
                is_first=never,
                valid=(place < 2) | (cut == 3) | ~ends,
                ended=bool(ends.any()),
                extras={},
                recurrent_state=None,
            )
        )
    (batch,) = buffer.batches(Clock(1))
    return batch


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_state_of_a_world_is_observations_and_agent(cut: int) -> None:
    """Compare with a walk through steps and rows; truncated episodes keep the true successor of all agents.

    Absent agents are zeros in the state, and so are agents after their termination.
    """
    steps = 4
    states, after = world_state(rollout_of(steps, cut), BOX, 3)
    assert states.shape[-1] == state_space(BOX, 3).shape[0]  # type: ignore[index]
    for t in range(steps):
        for row in range(6):
            first = row - row % 3
            ends = cut > 0 and t == steps - 2
            later = 99 if ends else 10 * (t + 1)
            gone = [2] if ends and cut < 3 else []
            ended = [cut] if ends and cut < 2 else []
            who = [float(row % 3 == one) for one in range(3)]
            seen = [float((10 * t + first + one) * (one not in gone)) for one in range(3) for _ in range(2)]
            left = [float((later + first + one) * (one not in gone + ended)) for one in range(3) for _ in range(2)]
            assert states[t, row].tolist() == seen + who
            assert after[t, row].tolist() == left + who


@pytest.mark.parametrize("how", ["truncated", "terminated"])
def test_end_of_one_agent_leaves_one_state_for_the_others(how: str) -> None:
    """V(next) of a step and V of the next step use the same state, so lambda-returns do not mix two."""
    buffer = RolloutBuffer(4, 3)
    steps = 4
    for at in range(steps):
        ends = np.arange(6) == 1 if at == 1 else np.zeros(6, np.bool_)
        rows = np.arange(6, dtype=np.float32)[:, None]
        buffer.add(
            Step(
                obs=10 * at + rows,
                action=np.zeros(6, np.int64),
                reward=np.zeros(6, np.float32),
                next_obs=10 * (at + 1) + rows,
                terminated=ends & (how == "terminated"),
                truncated=ends & (how == "truncated"),
                is_first=np.zeros(6, np.bool_),
                valid=(np.arange(6) != 1) | (at < 2),
                ended=bool(ends.any()),
                extras={},
                recurrent_state=None,
            )
        )
    (rollout,) = buffer.batches(Clock(1))
    states, after = world_state(rollout, spaces.Box(-1, 1, (1,), np.float32), 3)
    stays = np.arange(6) != 1
    np.testing.assert_array_equal(after[:-1, stays], states[1:, stays])
    assert after[1, 0].tolist() == [20, 0, 22, 1, 0, 0], "the agent is gone"
    own = [20, 21 * (how == "truncated"), 22, 0, 1, 0]
    assert after[1, 1].tolist() == own, "a time limit is not the end of its task, and its own state shows it"


def test_central_critic_sees_one_hot_numbers_and_scaled_pixels() -> None:
    """As a policy does: raw numbers say little, and 255 saturates units."""
    number = spaces.Discrete(30)
    image = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    space = spaces.Dict({"number": number, "image": image})
    numbers = np.arange(5 * 6).reshape(5, 6)
    obs: Any = {"image": np.full((5, 6, 8, 8, 3), 51, np.uint8), "number": numbers}
    states, after = world_state(replace(rollout_of(4, 0), obs=obs), space, 3)
    assert states.shape[-1] == state_space(space, 3).shape[0]  # type: ignore[index]
    for joint_state, seen in ((states, numbers[:-1]), (after, numbers[1:])):
        parts = joint_state[..., :-3].reshape(4, 6, 3, -1)
        np.testing.assert_allclose(parts[..., :192], 0.2)
        one_hot = parts[..., 192:]
        np.testing.assert_array_equal(one_hot.sum(-1), 1)
        np.testing.assert_array_equal(one_hot.argmax(-1), np.repeat(seen.reshape(4, 2, 3), 3, 1))


def test_rating_follows_elo_and_past_versions_keep_theirs() -> None:
    league = League(2, 1.0, np.random.default_rng(0))
    weights = {}
    league.keep(weights, 0, 10)
    league.choose(weights, 0, 10)
    assert league.opponent == 0
    league.record_result(1.0, league.opponent_rating)
    assert league.rating == FIRST_RATING + 8  # 16 * (1 - 0.5) for equal ratings
    league.keep(weights, 10, 10)
    expected = 1 / (1 + 10 ** ((FIRST_RATING - league.rating) / 400))
    league.opponent = 0
    before = league.rating
    league.record_result(0.0, league.opponent_rating)
    assert league.rating == pytest.approx(before - 16 * expected)
    assert [one["rating"] for one in league.snapshots] == [FIRST_RATING, FIRST_RATING + 8]
    league.keep(weights, 20, 10)
    assert len(league.snapshots) == 2, "the oldest gives way"
    league.opponent = None
    league.record_result(1.0, league.opponent_rating)
    assert league.rating == pytest.approx(before - 16 * expected), "against itself nothing is won"


@pytest.mark.parametrize("opponent", [0, 1, None])
def test_game_counts_for_its_first_opponent(opponent: int | None) -> None:
    league = League(3, 1.0, np.random.default_rng(0))
    league.snapshots = [{"weights": {}, "rating": rating} for rating in (1200.0, 1800.0)]
    league.opponent = opponent
    spec = Spec(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), 2, "X", agents=("one", "other"))
    buffer = SeatBuffer(Seats(spec), RolloutBuffer(4), league)

    def make_step(first: bool) -> Step:
        never = np.zeros(2, np.bool_)
        reward = np.float32([1, 0])
        obs = np.zeros((2, 2), np.float32)
        is_first = np.full(2, first)
        return Step(obs, np.zeros(2, np.int64), reward, obs, never, never, is_first, ~never, False, {}, None)

    buffer.add(make_step(first=True))
    league.opponent = None if opponent == 1 else 1
    twin = SeatBuffer(Seats(spec), RolloutBuffer(4), league)
    twin.load_state_dict(buffer.state_dict())
    twin.add(make_step(first=False))
    assert league.rating == FIRST_RATING
    twin.add(make_step(first=True))
    gained = {0: 8.0, 1: 16 * (1 - 1 / (1 + 10**1.5)), None: 0.0}
    assert league.rating == pytest.approx(FIRST_RATING + gained[opponent])


def test_opponent_has_past_weights_of_the_player() -> None:
    options = {"player": WORDS, "past": 1.0, "snapshot_every": 10**8, "num_envs": 2, "total_timesteps": 200}
    runner: Any = build(Plan.make("self-play", WORLD, options), Clock(200))
    agent = runner.actor.agent
    before = {name: one.clone() for name, one in agent.player.weights().items()}
    runner.run(lambda: None)
    assert [name for name, one in agent.opponent.weights().items() if not torch.equal(one, before[name])] == []
    assert not all(torch.equal(one, before[name]) for name, one in agent.player.weights().items())


def test_past_versions_play_only_in_training(tmp_path: Path) -> None:
    """The past version is untrained and cooperates often; the present weights defect."""
    options: dict[str, object] = {
        "player": WORDS, "past": 1.0, "window": 1, "snapshot_every": 10**8, "num_envs": 8, "total_timesteps": 6_000,
        "eval_wrap": ["none"], "eval_episodes": 4, "final_eval_episodes": 4, "seed": 1,
    }  # fmt: skip
    run = train("self-play", WORLD, options, out=tmp_path, hooks=False)
    assert run.evaluate(40, checkpoint="final").by_agent == {"row": 4.0, "column": 4.0}
    explored = run.evaluate(40, checkpoint="final", stochastic=True).by_agent
    assert max(explored.values()) < 5.5
    policy = load(run, checkpoint="final", deterministic=False)
    assert np.mean([policy(np.eye(2, dtype=np.float32)).tolist() for _ in range(100)]) > 0.85


def test_update_intervals_count_per_learner() -> None:
    """Two learners take turns, so one of them would never see an even update of the run."""
    words = ("*=dqn:learning_starts=16,train_freq=1,target_update_interval=2,batch_size=8,net.hidden=8",)
    options = {"agent": words, "separate": True, "num_envs": 1, "total_timesteps": 80}
    runner: Any = build(Plan.make("independent", WORLD, options), Clock(80))
    learners = list(runner.learner.learners.values())
    before = [[one.clone() for one in learner.target_network.parameters()] for learner in learners]
    runner.run(lambda: None)
    assert set(runner.learner.updates.values()) == {runner.clock.updates // 2}
    for learner, old in zip(learners, before, strict=True):
        assert any((one != other).any() for one, other in zip(old, learner.target_network.parameters(), strict=True))
    again: Any = build(Plan.make("independent", WORLD, options), Clock(80))
    again.load_state_dict(runner.state_dict())
    assert again.learner.updates == runner.learner.updates


def test_loaded_policy_acts_for_all_agents(tmp_path: Path) -> None:
    options = {"agent": ("*=ppo:n_steps=8,batch_size=8",), "separate": True, "num_envs": 1, "total_timesteps": 40}
    run = train(
        "independent", WORLD, {**options, "eval_episodes": 1, "final_eval_episodes": 1}, out=tmp_path, hooks=False
    )
    policy = load(run, deterministic=False)
    answers = np.array([policy(np.eye(2, dtype=np.float32)) for _ in range(40)])
    assert answers.shape == (40, 2)
    assert not (answers[:, 0] == answers[:, 1]).all()


class Scores(League):
    """Records the results of games."""

    def __init__(self) -> None:
        super().__init__(1, 1.0, np.random.default_rng(0))
        self.scores: list[float] = []

    def record_result(self, score: float, theirs: float) -> None:
        self.scores.append(score)


def game_of(gains: list[tuple[float, float]], out: int) -> list[Step]:
    """Return a game of two agents in which the first one ends after `out` steps: the rewards of both per step."""
    rows = []
    for at, gain in enumerate(gains):
        last = at == len(gains) - 1
        ends = np.array([at == out - 1, last])
        there = np.array([at < out, True])
        nothing = np.zeros((2, 2), np.float32)
        rows.append(
            Step(
                obs=nothing,
                action=np.zeros(2, np.int64),
                reward=np.array(gain, np.float32),
                next_obs=nothing,
                terminated=ends,
                truncated=np.zeros(2, np.bool_),
                is_first=np.full(2, at == 0),
                valid=there,
                ended=bool(ends.any()),
                extras={},
                recurrent_state=None,
            )
        )
    return rows


#: The first agent ends early and loses, ends early and wins, and plays a draw.
LEFT_EARLY = [
    game_of([(0, 0), (-1, 0), (0, -1), (0, -1)], out=2),
    game_of([(0, 0), (1, 0), (0, 3)], out=2),
    game_of([(0, 0), (0, 0)], out=2),
    game_of([(1, 0)], out=1),
]


def seat_buffer() -> tuple[SeatBuffer, Scores]:
    league = Scores()
    spec = replace(ALIKE, num_envs=2, agents=("wolf_0", "wolf_1"))
    return SeatBuffer(Seats(spec), RolloutBuffer(64), league), league


def test_game_is_decided_by_its_own_rewards_when_its_world_resets() -> None:
    buffer, league = seat_buffer()
    for step in chain.from_iterable(LEFT_EARLY):
        buffer.add(step)
    assert league.scores == [1.0, 0.0, 0.5], "the last one is still to be decided"


def test_unfinished_game_is_saved_and_dropped_at_a_restart() -> None:
    buffer, league = seat_buffer()
    for step in LEFT_EARLY[0]:
        buffer.add(step)
    other, its_league = seat_buffer()
    other.load_state_dict(buffer.state_dict())
    buffer.restart()
    for one in (buffer, other):
        one.add(LEFT_EARLY[2][0])
    assert (league.scores, its_league.scores) == ([], [1.0])
    assert not buffer.buffer.position - 1, "the rollout begins anew too"  # type: ignore[attr-defined]


def test_batches_have_only_the_signals_of_their_group() -> None:
    wolf, sheep = groups(ALIKE, ("wolf=ppo,sheep=dqn",), False)
    buffers: Any = {wolf.name: RolloutBuffer(1), sheep.name: RolloutBuffer(1)}
    none = np.zeros(6, np.bool_)
    step = Step(
        obs=np.zeros((6, 2), np.float32),
        action=np.zeros(6, np.int64),
        reward=np.zeros(6, np.float32),
        next_obs=np.zeros((6, 2), np.float32),
        terminated=none,
        truncated=none,
        is_first=none,
        valid=~none,
        ended=False,
        extras={"cost": np.array([0, 1, np.nan, 3, 4, np.nan], np.float32)},
        recurrent_state=None,
    )
    GroupsBuffer((wolf, sheep), buffers, {wolf.name: {"cost": None}, sheep.name: {}}).add(step)
    assert buffers[wolf.name].rollout.extras["cost"].tolist() == [[0, 1, 3, 4]]
    assert buffers[sheep.name].rollout.extras == {}
    lacking = GroupsBuffer((wolf, sheep), buffers, {wolf.name: {}, sheep.name: {"cost": None}})
    with pytest.raises(
        UsageError, match=r"dqn learns from info\['cost'\], and the info of an agent of the group sheep"
    ):
        lacking.add(step)
    filled = {wolf.name: RolloutBuffer(1), sheep.name: RolloutBuffer(1)}
    GroupsBuffer((wolf, sheep), filled, {wolf.name: {}, sheep.name: {"cost": 7.0}}).add(step)
    assert filled[sheep.name].rollout.extras["cost"].tolist() == [[7, 7]]
