"""Most names learn classic control for some seconds, with its presets: a broken algorithm shows here first.

What the algorithms reach in full is the `learn` session's; each bar here is far above what acting at random gets, 22 on
CartPole and -1,200 on Pendulum, and below what whole runs reach, 500 and -150.
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
#: Shorter bursts than the preset's and a narrower network: runs of a fifth of the length, in seconds.
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
#: Nothing but the noise on the weights explores; three steps and priorities make more of each gradient step.
NOISY = {**REPLAY, "learning_rate": 2e-3}
RAINBOW = {**NOISY, "gradient_steps": 8, "target_update_interval": 32, "n_atoms": 21}
#: The bar, env steps, and what else differs from the preset for CartPole. A policy that is pushed the wrong way may
#: still hold the pole for 160 steps by chance, so those that get far soon have higher bars.
#: With replay it falls after 10 steps when the loss has the wrong sign; for dqn and noisy-dqn also when the target
#: stands still, and for noisy-dqn when it acts without its noise.
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
#: Fewer critics and quantiles, half the batch and larger steps than the preset's.
TQC = {
    "random_steps": 500, "learning_starts": 500, "n_critics": 2, "n_quantiles": 10, "batch_size": 128,
    "learning_rate": 3e-3, "critic_learning_rate": 3e-3,
    "tau": 0.02,
}  # fmt: skip
#: Env steps and what else differs from the preset for Pendulum.
PENDULUM: dict[str, tuple[int, dict[str, Any]]] = {
    "ddpg": (3_000, {}), "td3": (4_000, {}), "sac": (3_000, {}), "crossq": (2_500, {}), "tqc": (1_750, TQC),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _as_in_training() -> Iterator[None]:
    with torch_settings(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def best(algorithm: str, env: str, options: dict[str, Any]) -> float:
    """The best mean return of greedy episodes in a run's second half, looked for as its final evaluation is."""
    plan = Plan.make(algorithm, env, {**preset(algorithm, env), "seed": 1, **options})
    clock = Clock(plan.options.total_timesteps)
    runner, judge, returns, seen = build(plan, clock), plan.make_env(EPISODES), list[float](), 0

    def poll() -> None:
        nonlocal seen
        if clock.progress > 0.5 and due(seen, clock.steps, clock.total // EVALUATIONS):
            returns.append(evaluate(runner.snapshot().agent(), judge, 7, clock).mean)
        seen = clock.steps

    runner.run(poll)
    runner.close()
    judge.close()
    return max(returns)


@pytest.mark.parametrize("algorithm", CARTPOLE)
def test_the_pole_is_held_up_longer(algorithm: str) -> None:
    bar, steps, options = CARTPOLE[algorithm]
    assert best(algorithm, "CartPole-v1", {"total_timesteps": steps, **options}) >= bar


@pytest.mark.parametrize("algorithm", PENDULUM)
def test_the_pendulum_is_swung_up(algorithm: str) -> None:
    steps, options = PENDULUM[algorithm]
    assert best(algorithm, "Pendulum-v1", {"total_timesteps": steps, **options}) >= -700
