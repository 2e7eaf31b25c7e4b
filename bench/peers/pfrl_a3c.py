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
        #: The steps of the worker that took the step `start`.
        self.worker_steps = multiprocessing.Value("l", 0)

    def __call__(self, env: OldGym, agent: A3C, step: int) -> None:
        if step == self.start:
            self.times[0] = time.perf_counter()
            self.worker_steps.value = agent.t
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
    agent = make_agent(setting)
    watch = Stopwatch(setting["warmup"], setting["warmup"] + setting["steps"])
    train(agent, setting, watch)
    assert 0 < watch.worker_steps.value < setting["warmup"], (
        "only one worker took part in the warm-up"
    )
    measure.report(
        "a3c",
        "pfrl",
        setting["steps"],
        seconds=watch.times[1] - watch.times[0],
        mean_return=mean_return(agent, make_env(setting, 99)),
        packages=["pfrl", "gymnasium", "torch", "numpy"],
    )


def make_agent(setting: dict[str, Any]) -> A3C:
    """Return an agent with rlplug's network and options; with `tuned`, the layers are shared as in PFRL's example."""
    model = network(setting["hidden"], 4, 2, trunk=setting["tuned"])
    optimizer = SharedRMSpropEpsInsideSqrt(
        model.parameters(),
        lr=setting["learning_rate"],
        eps=setting["rms_epsilon"],
        alpha=setting["rms_decay"],
    )
    return A3C(
        model,
        optimizer,
        t_max=setting["n_steps"],
        gamma=setting["gamma"],
        beta=setting["ent_coef"],
        v_loss_coef=2 * setting["vf_coef"],  # PFRL halves the squared error
        normalize_grad_by_t_max=True,  # the mean over the rollout, as in rlplug
        max_grad_norm=setting["max_grad_norm"],
    )


def make_env(setting: dict[str, Any], process: int) -> OldGym:
    """Return the environment of a worker process, with its own seed."""
    env = gym.make(setting["env"], disable_env_checker=True)
    return OldGym(env, 1000 * setting["seed"] + process)


def train(agent: A3C, setting: dict[str, Any], watch: Stopwatch) -> None:
    """Train in worker processes until the stop of the watch."""
    workers = setting["workers"]
    with tempfile.TemporaryDirectory() as directory:
        train_agent_async(
            directory,
            workers,
            lambda process, test: make_env(setting, process),
            steps=watch.stop,
            eval_interval=None,
            agent=agent,
            random_seeds=[workers * setting["seed"] + worker for worker in range(workers)],
            global_step_hooks=[watch],
        )


if __name__ == "__main__":
    main()
