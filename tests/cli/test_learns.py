"""Most algorithms learn classic control in seconds with their presets; a broken algorithm fails here first.

The session `learn` measures complete runs. Each threshold here is far above the return of random actions (22 on
CartPole, -1,200 on Pendulum) and below the return of complete runs (500 and -150).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rlplug_core.clock import Clock, due
from rlplug_core.loop.build import build
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import torch_settings
from rlplug_core.plugins.presets import preset

pytestmark = pytest.mark.slow
EPISODES, EVALUATIONS = 20, 10
#: Shorter bursts than in the preset and a narrower network: a run takes a fifth of the steps, some seconds.
REPLAY = {
    "train_freq": 64,
    "gradient_steps": 32,
    "target_update_interval": 64,
    "learning_rate": 1e-3,
    "exploration_fraction": 0.4,
    "net.hidden": [64, 64],
}
INLINE = {"inline": True, "workers": 2}
ACTORS = {"inline": True, "actors": 2}
#: Only the noise on the weights explores; three steps and priorities make each gradient step learn more.
NOISY = {**REPLAY, "learning_rate": 2e-3}
RAINBOW = {**NOISY, "gradient_steps": 8, "target_update_interval": 32, "n_atoms": 21}
#: The threshold, env steps, and other differences from the preset for CartPole. A policy with a gradient of the wrong
#: sign may hold the pole for 160 steps by chance, so algorithms that learn fast have higher thresholds.
#: With replay and a loss of the wrong sign, the pole falls after 10 steps; for dqn and noisy-dqn also if the target
#: network is never updated, and for noisy-dqn if it acts without noise.
CARTPOLE: dict[str, tuple[int, int, dict[str, Any]]] = {
    "a2c": (300, 40_000, {}), "a3c": (200, 40_000, INLINE), "ppo": (300, 40_000, {}), "trpo": (300, 20_000, {}),
    "impala": (200, 40_000, ACTORS), "appo": (120, 60_000, ACTORS),
    "acktr": (300, 24_000, {}), "acer": (250, 16_000, {}), "vpg": (300, 80_000, {}), "vac": (100, 60_000, {}),
    "vqn": (300, 60_000, {"num_envs": 32, "learning_rate": 3e-3, "gamma": 0.99}), "vsarsa": (250, 60_000, {}),
    "nstep-q": (100, 60_000, INLINE),
    "sac-discrete": (250, 6_000, {}),
    **dict.fromkeys(("dqn", "per-dqn", "c51", "qrdqn", "iqn"), (100, 8_000, REPLAY)),
    "noisy-dqn": (100, 8_000, {**NOISY, "random_steps": 0}), "rainbow": (100, 8_000, RAINBOW),
}  # fmt: skip
#: Fewer critics and quantiles, half the batch and higher learning rates than in the preset.
TQC = {
    "random_steps": 500, "learning_starts": 500, "n_critics": 2, "n_quantiles": 10, "batch_size": 128,
    "learning_rate": 3e-3, "critic_learning_rate": 3e-3,
    "tau": 0.02,
}  # fmt: skip
#: Env steps and other differences from the preset for Pendulum.
PENDULUM: dict[str, tuple[int, dict[str, Any]]] = {
    "ddpg": (3_000, {}), "td3": (4_000, {}), "sac": (3_000, {}), "crossq": (2_500, {}), "tqc": (1_750, TQC),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _training_settings() -> Iterator[None]:
    with torch_settings(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def best_return(algorithm: str, env: str, options: dict[str, Any]) -> float:
    """Return the best mean return of greedy evaluations in the second half of a run."""
    plan = Plan.make(algorithm, env, {**preset(algorithm, env), "seed": 1, **options})
    clock = Clock(plan.options.total_timesteps)
    runner = build(plan, clock)
    eval_env = plan.make_env(EPISODES)
    returns = list[float]()
    last_step = 0

    def poll() -> None:
        nonlocal last_step
        if clock.progress > 0.5 and due(last_step, clock.steps, clock.total // EVALUATIONS):
            returns.append(evaluate(runner.snapshot().agent(), eval_env, 7, clock).mean)
        last_step = clock.steps

    runner.run(poll)
    runner.close()
    eval_env.close()
    return max(returns)


@pytest.mark.parametrize("algorithm", CARTPOLE)
def test_learns_cartpole(algorithm: str) -> None:
    threshold, steps, options = CARTPOLE[algorithm]
    assert best_return(algorithm, "CartPole-v1", {"total_timesteps": steps, **options}) >= threshold


@pytest.mark.parametrize("algorithm", PENDULUM)
def test_learns_pendulum(algorithm: str) -> None:
    steps, options = PENDULUM[algorithm]
    assert best_return(algorithm, "Pendulum-v1", {"total_timesteps": steps, **options}) >= -700
