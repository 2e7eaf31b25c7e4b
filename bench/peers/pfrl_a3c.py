"""A3C of PFRL: processes that share weights and RMSProp's moments, with the network shape of its own A3C example."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import measure  # first: it sets the thread count that torch reads
import gymnasium as gym
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
    """Gymnasium behind the interface PFRL expects: `reset` gives the observation, `step` four values.

    A time limit is not an end of the task for PFRL either: it bootstraps where `needs_reset` is set.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int) -> None:
        self.env = env
        self.seed: int | None = seed

    def reset(self) -> np.ndarray:
        seed, self.seed = self.seed, None
        return self.env.reset(seed=seed)[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if truncated:
            info["needs_reset"] = True
        return obs, reward, terminated, info

    def close(self) -> None:
        self.env.close()


class Stopwatch:
    """Called by PFRL once per env step with the global count; stamps two of them."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.times = multiprocessing.Array("d", 2)
        self.own = multiprocessing.Value("l", 0)

    def __call__(self, env: OldGym, agent: A3C, step: int) -> None:
        if step == self.start:
            self.times[0] = time.perf_counter()
            self.own.value = agent.t
        elif step == self.stop:
            self.times[1] = time.perf_counter()


def network(hidden: list[int], observation: int, actions: int) -> nn.Module:
    """A trunk shared by policy and value, as in PFRL's A3C example."""
    sizes = [observation, *hidden]
    trunk = [layer for a, b in zip(sizes[:-1], hidden, strict=True) for layer in (nn.Linear(a, b), nn.Tanh())]
    policy = nn.Sequential(nn.Linear(sizes[-1], actions), SoftmaxCategoricalHead())
    return nn.Sequential(*trunk, pfrl.nn.Branched(policy, nn.Linear(sizes[-1], 1)))


def mean_return(agent: A3C, env: OldGym, episodes: int = 20) -> float:
    """Greedy episodes with the trained weights."""
    agent.sync_parameters()
    agent.act_deterministically = True
    total = 0.0
    with agent.eval_mode():
        for _ in range(episodes):
            obs, over = env.reset(), False
            while not over:
                obs, reward, done, info = env.step(agent.act(obs))
                total += reward
                over = done or "needs_reset" in info
    return total / episodes


def main() -> None:
    setting = measure.settings("a3c")
    if setting["tuned"]:
        torch.distributions.Distribution.set_default_validate_args(False)
    pfrl.utils.set_random_seed(setting["seed"])

    def make_env(process: int, test: bool) -> OldGym:
        return OldGym(gym.make(setting["env"], disable_env_checker=True), 1000 * setting["seed"] + process)

    model = network(setting["hidden"], 4, 2)
    optimiser = SharedRMSpropEpsInsideSqrt(
        model.parameters(), lr=setting["lr"], eps=setting["rms_epsilon"], alpha=setting["rms_decay"]
    )
    agent = A3C(
        model,
        optimiser,
        t_max=setting["rollout"],
        gamma=setting["gamma"],
        beta=setting["entropy"],
        v_loss_coef=setting["value"],
        max_grad_norm=setting["clip"],
    )
    total = setting["warmup"] + setting["steps"]
    watch = Stopwatch(setting["warmup"], total)
    with tempfile.TemporaryDirectory() as directory:
        train_agent_async(
            directory, setting["workers"], make_env, steps=total, eval_interval=None, agent=agent,
            random_seeds=[setting["workers"] * setting["seed"] + i for i in range(setting["workers"])],
            global_step_hooks=[watch],
        )  # fmt: skip
    assert 0 < watch.own.value < setting["warmup"], "one worker alone made the warm-up"
    after = mean_return(agent, make_env(99, True))
    seconds = watch.times[1] - watch.times[0]
    measure.report("a3c", "pfrl", setting["steps"], seconds, after, ["pfrl", "gymnasium", "torch", "numpy"])


if __name__ == "__main__":
    main()
