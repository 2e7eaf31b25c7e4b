"""A3C of PFRL: processes that share weights and RMSProp's moments."""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from typing import Any

import gymnasium as gym
import measure
import numpy as np
import pfrl
import torch
from pfrl.agents.a3c import A3C
from pfrl.experiments import train_agent_async
from pfrl.optimizers import SharedRMSpropEpsInsideSqrt
from pfrl.policies import SoftmaxCategoricalHead
from torch import multiprocessing, nn

torch.set_num_threads(1)  # worker processes are forked and inherit it


class OldGym:
    """Gymnasium with the interface that PFRL expects: `reset` returns the observation, `step` four values.

    PFRL also bootstraps at time limits: `needs_reset` marks them.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self.env = env
        self.seed: int | None = seed

    def reset(self) -> np.ndarray:
        seed = self.seed
        self.seed = None
        return self.env.reset(seed=seed)[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if truncated:
            info["needs_reset"] = True
        return obs, reward, terminated, info

    def close(self) -> None:
        self.env.close()


class Stopwatch:
    """Records the times of two env steps; PFRL calls it at each step with the global count."""

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.times = multiprocessing.Array("d", 2)
        self.own = multiprocessing.Value("l", 0)

    def __call__(self, env: OldGym, agent: A3C, step: int) -> None:
        if step == self.start:
            self.times[0] = time.perf_counter()
            self.own.value = agent.t
        elif step == self.stop:
            self.times[1] = time.perf_counter()


def tower(sizes: list[int], last: list[nn.Module]) -> list[nn.Module]:
    """Return hidden layers with tanh, then `last`."""
    return [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())] + last


def network(hidden: list[int], observation: int, actions: int, trunk: bool) -> nn.Module:
    """Return networks for policy and value: separate ones as in rlplug, or with `trunk` shared layers as in PFRL."""
    sizes = [observation, *hidden]
    policy = [nn.Linear(sizes[-1], actions), SoftmaxCategoricalHead()]
    value = [nn.Linear(sizes[-1], 1)]
    if trunk:
        return nn.Sequential(*tower(sizes, [pfrl.nn.Branched(nn.Sequential(*policy), *value)]))
    return pfrl.nn.Branched(
        nn.Sequential(*tower(sizes, policy)), nn.Sequential(*tower(sizes, value))
    )


def mean_return(agent: A3C, env: OldGym, episodes: int = 20) -> float:
    """Return the mean return of greedy episodes."""
    agent.sync_parameters()
    agent.act_deterministically = True
    total = 0.0
    with agent.eval_mode():
        for _ in range(episodes):
            obs = env.reset()
            over = False
            while not over:
                obs, reward, done, info = env.step(agent.act(obs))
                total += reward
                over = done or "needs_reset" in info
    return total / episodes


def main() -> None:
    setting = measure.settings("a3c")
    if setting["tuned"]:
        torch.set_flush_denormal(True)
        torch.distributions.Distribution.set_default_validate_args(False)
    pfrl.utils.set_random_seed(setting["seed"])

    def make_env(process: int, test: bool) -> OldGym:
        return OldGym(
            gym.make(setting["env"], disable_env_checker=True), 1000 * setting["seed"] + process
        )

    model = network(setting["hidden"], 4, 2, trunk=setting["tuned"])
    optimizer = SharedRMSpropEpsInsideSqrt(
        model.parameters(),
        lr=setting["learning_rate"],
        eps=setting["rms_epsilon"],
        alpha=setting["rms_decay"],
    )
    agent = A3C(
        model,
        optimizer,
        t_max=setting["n_steps"],
        gamma=setting["gamma"],
        beta=setting["ent_coef"],
        v_loss_coef=2 * setting["vf_coef"],  # PFRL halves the squared error
        normalize_grad_by_t_max=True,  # the mean over the rollout, as in rlplug
        max_grad_norm=setting["max_grad_norm"],
    )
    total = setting["warmup"] + setting["steps"]
    watch = Stopwatch(setting["warmup"], total)
    with tempfile.TemporaryDirectory() as directory:
        train_agent_async(
            directory,
            setting["workers"],
            make_env,
            steps=total,
            eval_interval=None,
            agent=agent,
            random_seeds=[
                setting["workers"] * setting["seed"] + i for i in range(setting["workers"])
            ],
            global_step_hooks=[watch],
        )
    assert 0 < watch.own.value < setting["warmup"], "only one worker took part in the warm-up"
    after = mean_return(agent, make_env(99, True))
    seconds = watch.times[1] - watch.times[0]
    measure.report(
        "a3c",
        "pfrl",
        setting["steps"],
        seconds,
        mean_return=after,
        packages=["pfrl", "gymnasium", "torch", "numpy"],
    )


if __name__ == "__main__":
    main()
