"""Goals of the algorithms by environment; `learn.py` tests them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

#: How the final returns of the seeds become one number that is compared with the bar.
Judge = Literal["every seed", "median", "interquartile mean"]
#: The algorithms with a replay buffer; each must pass on CartPole, and the classic check.
REPLAY = (
    "dqn",
    "ddqn",
    "dueling-dqn",
    "per-dqn",
    "noisy-dqn",
    "nstep-dqn",
    "c51",
    "qrdqn",
    "iqn",
    "rainbow",
    "rainbow-iqn",
)
SEEDS = (1, 2, 3, 4, 5)
#: Table `offline`: evaluation options, options of the recording runs, lengths of the data sets.
FROM_DATA: dict[str, tuple[tuple[str, Any], ...]] = {
    "Pendulum-v1": (("eval_episodes", 20), ("eval_every", 1_000)),
    "HalfCheetah-v5": (("eval_episodes", 5), ("eval_every", 2_500), ("final_eval_episodes", 20)),
    "Reacher-v5": (("total_timesteps", 5_000), ("eval_episodes", 20), ("eval_every", 1_000)),
}
RECORDERS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"seed": 1, "total_timesteps": 15_000, "eval_episodes": 10},
    "HalfCheetah-v5": {
        "seed": 1,
        "total_timesteps": 30_000,
        "eval_episodes": 5,
        "eval_every": 5_000,
    },
    "Reacher-v5": {"seed": 1, "total_timesteps": 10_000, "eval_episodes": 20},
}
RECORDED = {"Pendulum-v1": 20_000, "HalfCheetah-v5": 50_000, "Reacher-v5": 20_000}
RECALL = "rlplug_core.testing.envs:LongRecall"
#: An environment that needs memory, and the length of its training.
GRID = "MiniGrid-MemoryS7-v0"
LOOKED: tuple[tuple[str, Any], ...] = (("total_timesteps", 1_500_000), ("eval_episodes", 50))
PARTS = (
    "learning",
    "classic",
    "pixels",
    "minatar",
    "robots",
    "atari",
    "kinds",
    "offline",
    "memory",
    "families",
    "device",
    "presets",
    "agents",
)
SPREAD = "pettingzoo/mpe2.simple_spread_v3"
LENGTH = ("total_timesteps", 600_000)
SPREADING = {"ppo": (LENGTH,), "mappo": (LENGTH,), "independent": (LENGTH, ("separate", True))}
#: Worlds with two communicating agents. Speaker and listener have different spaces, so a shared critic is impossible.
SPEAKING = (
    ("mappo", "simple_reference_v3"),
    ("independent", "simple_reference_v3"),
    ("independent", "simple_speaker_listener_v4"),
)
#: Games of two players and the required result against a random opponent.
OF_TWO = {"connect_four": 0.8, "tictactoe": None, "leduc_holdem": None}
#: Options of the decoupled runner with actors outside of local processes.
ELSEWHERE: dict[str, tuple[tuple[str, Any], ...]] = {
    "inline": (("inline", True),),
    "ray": (("on", "ray"),),
}
#: Both make a gradient step every four env steps; the learning rates are the best of each, and returns are at most 30.
BRICKS: dict[str, dict[str, Any]] = {
    "dqn": {"learning_rate": 2.5e-4, "target_update_interval": 500},
    "rainbow": {"learning_rate": 5e-4, "v_min": 0.0, "v_max": 20.0, "noisy_sigma": 0.1},
}
#: Table `minatar`: games and training lengths; DQN and Rainbow as in `BRICKS`.
MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
PLAYED: tuple[tuple[str, Any], ...] = (("eval_episodes", 10), ("final_eval_episodes", 30))
MINATAR_STEPS = {"ppo": 500_000, "dqn": 200_000, "rainbow": 100_000}
MINATAR_OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "dqn": {**BRICKS["dqn"], "train_freq": 4, "exploration_fraction": 0.2},
    "rainbow": {**BRICKS["rainbow"], "train_freq": 4, "target_update_interval": 500},
}
#: Table `robots`: environments and evaluation options.
ROBOTS = ("Hopper", "Walker2d", "Ant", "HalfCheetah", "Reacher", "InvertedPendulum", "Swimmer")
SHORT: tuple[tuple[str, Any], ...] = (("eval_episodes", 10), ("final_eval_episodes", 20))
#: Training lengths of algorithms with a gradient step at every env step; two robots need fewer steps.
EACH_STEP = {**dict.fromkeys(ROBOTS, 30_000), "Reacher": 10_000, "InvertedPendulum": 10_000}
#: Algorithms that use the options of CartPole on Acrobot, and their training length.
ACROBATS = ("a3c", "impala", "appo", "trpo", "acer", "acktr", "vpg", "vac", "nstep-q")
LONG: tuple[tuple[str, Any], ...] = (("total_timesteps", 300_000), ("eval_episodes", 20))
#: Table `atari`: evaluation options; a game takes about 2,000 steps.
GAMES: tuple[tuple[str, Any], ...] = (("eval_episodes", 10), ("final_eval_episodes", 30))
#: Like published curves: no sticky actions, and a constant learning rate, because theirs hardly falls in so short a
#: run.
UNSTUCK: tuple[tuple[str, Any], ...] = (
    ("eval_episodes", 5),
    ("final_eval_episodes", 10),
    ("wrap", ("atari:sticky=0",)),
    ("anneal_lr", False),
)
PIXELS = f"{Path(__file__).with_name('pixels.py')}:Bricks"


#: Table `kinds`: environment, training length, algorithms.
BRIEFLY: tuple[tuple[str, Any], ...] = (("eval_episodes", 20),)
ON_POLICY = ("a2c", "a3c", "impala", "appo", "trpo", "vpg", "vac")
KINDS = (
    ("CartPole-v1", 50_000, ("r2d2",)),
    ("CartPole-v1", 100_000, ("ppo-recurrent",)),
    ("FrozenLake-v1", 50_000, (*REPLAY[1:], "apex", "r2d2", "vqn", "vsarsa", "sac-discrete")),
    ("FrozenLake-v1", 100_000, ("acer", "acktr", "nstep-q")),
    (
        "Acrobot-v1",
        100_000,
        ("ddqn", "dueling-dqn", "per-dqn", "noisy-dqn", "nstep-dqn", "c51", "iqn", "rainbow-iqn"),
    ),
    ("Acrobot-v1", 100_000, ("apex", "sac-discrete")),
    ("Acrobot-v1", 300_000, ("vqn", "vsarsa")),
    ("LunarLander-v3", 500_000, ("vqn", "vsarsa")),
    ("InvertedPendulum-v5", 100_000, (*ON_POLICY, "acer-continuous")),
    ("InvertedPendulum-v5", 10_000, ("ddpg", "crossq")),
    ("Reacher-v5", 10_000, ("ddpg", "crossq")),
    ("Reacher-v5", 100_000, ("acer-continuous",)),
)
#: Table `presets`: algorithm, training length, form of the ids, environments, and the least return that is far above
#: that of random actions. A preset below it is not counted as evidence.
BRIEF: tuple[tuple[str, Any], ...] = (("eval_episodes", 10), ("eval_every", 10_000))
RARELY: tuple[tuple[str, Any], ...] = (("eval_episodes", 10), ("eval_every", 50_000))
#: With ten episodes, weights that never finish from some starts of Taxi were taken for the best.
TAXI: tuple[tuple[str, Any], ...] = (("eval_episodes", 100), ("eval_every", 50_000))
PRESETS: tuple[tuple[str, int, str, tuple[str, ...], float], ...] = (
    ("ppo", 50_000, "{}", ("CartPole-v0",), 190),
    ("ppo", 50_000, "MiniGrid-Empty-{}-v0", ("5x5", "6x6", "Random-5x5", "Random-6x6"), 0.5),
    ("a2c", 100_000, "{}", ("Blackjack-v1",), -0.1),
    ("ppo", 100_000, "MiniGrid-{}-v0", ("LavaGapS5",), 0.5),
    ("ppo", 300_000, "{}", ("Taxi-v4",), 7),
    ("ppo", 40_000, "BabyAI-{}-v0", ("GoToObjS4",), 0.5),
    ("ppo", 40_000, "MiniGrid-Dynamic-Obstacles-{}-v0", ("5x5", "Random-5x5"), 0.5),
    ("ppo", 50_000, "{}-v5", ("InvertedDoublePendulum",), 300),
    ("ppo", 50_000, "{}-v5", ("Pusher",), -45),
    ("ppo", 60_000, "MiniGrid-{}-v0", ("MultiRoom-N2-S4",), 0.5),
    ("ppo", 60_000, "BabyAI-{}-v0", ("OpenRedDoor",), 0.5),
    ("ppo", 100_000, "{}-v5", ("HumanoidStandup",), 60_000),
    ("ppo", 100_000, "{}-v5", ("Humanoid",), 300),
    ("ppo", 200_000, "{}", ("CliffWalking-v1",), -20),
    ("ppo", 60_000, "BabyAI-{}", ("GoToObjS6-v1",), 0.5),
    ("ppo", 150_000, "{}", ("pettingzoo/mpe2.simple_v3",), -15),
    ("ppo", 200_000, "MinAtar/{}-v0", ("SpaceInvaders",), 15),
    ("ppo", 200_000, "MinAtar/{}-v0", ("Breakout",), 3),
    ("ppo", 200_000, "{}", ("LunarLanderContinuous-v3",), 50),
    ("ppo", 60_000, "BabyAI-{}-v0", ("OpenDoorDebug", "GoToLocalS5N2", "ActionObjDoor"), 0.5),
    (
        "ppo",
        200_000,
        "BabyAI-{}-v0",
        ("GoToObj", "GoToRedBallNoDists", "GoToRedBallGrey", "OpenDoor"),
        0.5,
    ),
    ("ppo", 200_000, "MiniGrid-{}-v0", ("LavaGapS6", "LavaGapS7", "SimpleCrossingS9N1"), 0.5),
    ("ppo", 200_000, "MiniGrid-{}-v0", ("DistShift1", "DistShift2", "Unlock"), 0.5),
    ("ppo", 200_000, "MiniGrid-Dynamic-Obstacles-{}-v0", ("6x6", "Random-6x6"), 0.5),
    ("ppo", 200_000, "{}", ("CliffWalkingSlippery-v1",), -100),
    ("ppo", 60_000, "MiniGrid-{}-v0", ("Fetch-5x5-N2", "GoToDoor-5x5"), 0.3),
    ("ppo", 200_000, "{}", ("BipedalWalker-v3",), 50),
    ("ppo", 100_000, "MiniGrid-{}-v0", ("KeyCorridorS3R1", "RedBlueDoors-6x6"), 0.5),
)
#: Results of one run from rl-baselines3-zoo, with their env steps.
PUBLISHED = {
    "a2c": {"CartPole-v1": "500 (500k)", "Acrobot-v1": "-83.4 (500k)", "ALE/Pong-v5": "17.3 (10M)"},
    "ppo": {
        "CartPole-v1": "500 (100k)",
        "Acrobot-v1": "-73.5 (1M)",
        "LunarLander-v3": "242 (1M)",
        "Pendulum-v1": "-172 (100k)",
        "Hopper-v5": "2,410 (1M)",
        "Walker2d-v5": "3,479 (1M)",
        "Ant-v5": "1,327 (1M)",
        "HalfCheetah-v5": "5,819 (1M)",
        "Swimmer-v5": "282 (1M)",
        "ALE/Pong-v5": "21.0 (10M)",
    },
    "dqn": {
        "CartPole-v1": "500 (50k)",
        "Acrobot-v1": "-76.6 (100k)",
        "LunarLander-v3": "154 (100k)",
        "MountainCar-v0": "-100.8 (120k)",
    },
    "qrdqn": {"CartPole-v1": "500 (50k)", "Acrobot-v1": "-69.1 (100k)"},
    "trpo": {
        "CartPole-v1": "500 (100k)",
        "Acrobot-v1": "-83.1 (100k)",
        "Pendulum-v1": "-175 (100k)",
    },
    "ddpg": {"Pendulum-v1": "-152 (20k)"},
    "td3": {"Pendulum-v1": "-152 (20k)"},
    "sac": {"Pendulum-v1": "-157 (20k)"},
}


@dataclass(frozen=True)
class Goal:
    """The required result of an algorithm on an environment.

    `bar` is a mean return (without it the table only reports), `steps` are the env steps of the preset. `judge` turns
    the final returns of the seeds into one number. `options` are added to the preset; `variant` is a word for them if
    the algorithm has another goal on this environment. `part` is the table. With `extends` the runs of the goal without
    the variant are resumed to `steps`. With `at_most` the bar is an upper limit for every seed, to show that a task is
    impossible. With `success` returns are shares of episodes that reach their goal.
    """

    algorithm: str
    env: str
    steps: int
    bar: float | None = None
    judge: Judge = "every seed"
    options: tuple[tuple[str, Any], ...] = ()
    part: str = "learning"
    at_most: bool = False
    variant: str = ""
    success: bool = False
    extends: bool = False

    @property
    def label(self) -> str:
        """The algorithm and its variant."""
        return "-".join(filter(None, (self.algorithm, self.variant)))

    @property
    def name(self) -> str:
        """The form that `--only` accepts."""
        return f"{self.label}/{self.env.rpartition(':')[2]}"


def mean_goal(
    name: str,
    env: str,
    steps: int,
    *,
    part: str,
    options: tuple[tuple[str, Any], ...],
    bar: float | None = None,
    variant: str = "",
) -> Goal:
    """Make a goal with its own training length, judged by the interquartile mean of the seeds."""
    options = (*options, ("total_timesteps", steps))
    return Goal(
        name, env, steps, bar, "interquartile mean", options=options, part=part, variant=variant
    )


def evaluations_of(env: str, steps: int) -> tuple[tuple[str, Any], ...]:
    """Return the evaluation options of a goal of the table `presets`."""
    if "Taxi" in env:
        return TAXI
    return BRIEF if steps <= 100_000 else RARELY


def extend(goal: Goal, before: int) -> Goal:
    """Make a goal that extends runs of `before` steps, with the same interval between evaluations."""
    options = (*goal.options, ("eval_every", before // 20))
    return replace(goal, options=options, variant="long", extends=True)


GOALS = (
    Goal("a2c", "CartPole-v1", 200_000, 475),
    Goal(
        "a2c",
        "CartPole-v1",
        200_000,
        475,
        options=(("noisy", "factorized"), ("ent_coef", 0.0)),
        variant="noisy",
    ),
    Goal("a3c", "CartPole-v1", 200_000, 475),
    Goal("impala", "CartPole-v1", 400_000, 475),
    Goal("appo", "CartPole-v1", 400_000, 475),
    *(
        Goal(name, "CartPole-v1", 400_000, 475, options=options, variant=variant)
        for name in ("impala", "appo")
        for variant, options in ELSEWHERE.items()
    ),
    Goal("apex", "CartPole-v1", 100_000, 475),
    Goal("ppo", "CartPole-v1", 100_000, 475),
    Goal("vqn", "CartPole-v1", 300_000, 400),
    Goal("vsarsa", "CartPole-v1", 300_000, 400),
    Goal("nstep-q", "CartPole-v1", 300_000, 475),
    *(Goal(name, "CartPole-v1", 50_000, 475) for name in REPLAY),
    Goal("ppo", "Acrobot-v1", 500_000, -80),
    Goal("a2c", "Acrobot-v1", 500_000, -90),
    *(Goal(name, "Acrobot-v1", 100_000, -90) for name in ("dqn", "qrdqn", "rainbow")),
    *(
        Goal(name, "Acrobot-v1", 300_000, -100, "interquartile mean", options=LONG)
        for name in ACROBATS
    ),
    Goal("dqn", "LunarLander-v3", 100_000, 150, "median"),
    Goal("ppo", "LunarLander-v3", 1_000_000, 220, "median"),
    Goal("trpo", "CartPole-v1", 100_000, 475),
    Goal("acer", "CartPole-v1", 200_000, 475),
    Goal(
        "acer",
        "CartPole-v1",
        200_000,
        475,
        options=(("runner", "async"), ("workers", 2)),
        variant="async",
    ),
    Goal("acktr", "CartPole-v1", 200_000, 475),
    Goal("sac-discrete", "CartPole-v1", 100_000, 475),
    Goal("vpg", "CartPole-v1", 300_000, 475),
    Goal("vac", "CartPole-v1", 300_000, 400),
    Goal("ppo", "Pendulum-v1", 100_000, -200),
    Goal("ddpg", "Pendulum-v1", 20_000, -170),
    Goal("td3", "Pendulum-v1", 20_000, -170),
    Goal("sac", "Pendulum-v1", 20_000, -170),
    Goal(
        "sac",
        "Pendulum-v1",
        20_000,
        -170,
        options=(("runner", "decoupled"), ("actors", 2)),
        variant="actors",
    ),
    Goal("tqc", "Pendulum-v1", 20_000, -170),
    Goal("crossq", "Pendulum-v1", 20_000, -170),
    Goal("trpo", "Pendulum-v1", 100_000, -200),
    Goal("dqn", "MountainCar-v0", 120_000),
    *(
        Goal(
            name, "CartPole-v0", 10_000, 200, options=(("final_eval_episodes", 1),), part="classic"
        )
        for name in REPLAY
    ),
    *(
        Goal(
            name,
            PIXELS,
            100_000,
            judge="interquartile mean",
            options=tuple(options.items()),
            part="pixels",
        )
        for name, options in BRICKS.items()
    ),
    *(
        mean_goal(
            name,
            f"MinAtar/{game}-v1",
            steps,
            part="minatar",
            options=(*PLAYED, *MINATAR_OPTIONS[name].items()),
        )
        for name, steps in MINATAR_STEPS.items()
        for game in MINATAR
    ),
    *(mean_goal("ppo", f"{robot}-v5", 100_000, part="robots", options=SHORT) for robot in ROBOTS),
    *(
        mean_goal(name, f"{robot}-v5", steps, part="robots", options=SHORT)
        for name in ("sac", "td3", "tqc")
        for robot, steps in EACH_STEP.items()
    ),
    *(
        extend(mean_goal(name, f"{robot}-v5", 100_000, part="robots", options=SHORT), steps)
        for name in ("sac", "td3", "tqc")
        for robot, steps in EACH_STEP.items()
    ),
    mean_goal("ppo", "ALE/Pong-v5", 1_500_000, part="atari", options=GAMES),
    *(
        mean_goal(
            name, "ALE/Pong-v5", steps, part="atari", options=UNSTUCK, bar=bar, variant="not-sticky"
        )
        for name, steps, bar in (("ppo", 1_200_000, 0), ("a2c", 3_000_000, None))
    ),
    Goal("acer-continuous", "Pendulum-v1", 100_000),
    *(
        mean_goal(name, env, steps, part="kinds", options=BRIEFLY)
        for env, steps, names in KINDS
        for name in names
    ),
    *(
        Goal(name, "Pendulum-v1", 5_000, -165, options=FROM_DATA["Pendulum-v1"], part="offline")
        for name in ("iql", "cql")
    ),
    *(
        Goal(
            name,
            "HalfCheetah-v5",
            10_000,
            2_233,
            options=FROM_DATA["HalfCheetah-v5"],
            part="offline",
        )
        for name in ("iql", "cql")
    ),
    *(
        Goal(name, "Reacher-v5", 5_000, options=FROM_DATA["Reacher-v5"], part="offline")
        for name in ("iql", "cql")
    ),
    Goal("ppo-recurrent", RECALL, 50_000, 0.95, part="memory"),
    Goal("r2d2", RECALL, 50_000, 0.95, part="memory"),
    Goal("ppo", RECALL, 50_000, 0.6, part="memory", at_most=True),
    Goal(
        "ppo-recurrent", GRID, 1_500_000, 0.9, "interquartile mean", options=LOOKED, part="memory"
    ),
    Goal("ppo", GRID, 1_500_000, 0.6, options=LOOKED, part="memory", at_most=True),
    *(
        Goal("ppo", f"MiniGrid-{grid}-v0", 200_000, 0.9, part="families")
        for grid in ("Empty-8x8", "DoorKey-5x5")
    ),
    Goal("sac", "FetchReach-v4", 15_000, 0.95, part="families", success=True),
    *(
        Goal("ppo", f"{family}/CartPole-v1", 1_500_000, 475, part="device")
        for family in ("tensor", "gymnax")
    ),
    *(
        Goal(name, "tensor/Pendulum-v1", 100_000, -200, part="device")
        for name in ("fast-td3", "fast-sac")
    ),
    *(
        Goal("pqn", f"tensor/MinAtar-{game}-v1", 10_000_000, part="device")
        for game in ("Breakout", "SpaceInvaders")
    ),
    *(
        Goal(
            name,
            env,
            steps,
            bar,
            options=(
                *evaluations_of(env, steps),
                ("total_timesteps", steps),
            ),
            part="presets",
        )
        for name, steps, form, envs, bar in PRESETS
        for env in map(form.format, envs)
    ),
    *(
        Goal(name, SPREAD, 600_000, -18.9, "interquartile mean", options=options, part="agents")
        for name, options in SPREADING.items()
    ),
    *(
        Goal(
            name,
            f"pettingzoo/mpe2.{world}",
            600_000,
            None,
            "interquartile mean",
            options=SPREADING[name],
            part="agents",
        )
        for name, world in SPEAKING
    ),
    mean_goal("mappo", "pettingzoo/sisl.multiwalker_v9", 200_000, part="agents", options=SHORT),
    *(
        mean_goal(
            "self-play", f"pettingzoo/classic.{game}", 200_000, part="agents", options=(), bar=bar
        )
        for game, bar in OF_TWO.items()
    ),
)
