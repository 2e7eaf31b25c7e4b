"""What does an update take whose loss somebody wrote for torch? By autograd, and by rules where its author asks.

    python bench/foreign.py             # --write puts the table into RESULTS.md

PPO's minibatch in the words that PyTorch users write: 256 samples, two networks of two layers of 64 with tanh.
"""

# threads are set before numpy is imported
from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
from dataclasses import dataclass
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from results import machine, revision, table, write_section
from torch import Tensor
from turns import least

import rlplug_core as rl
from rlplug_core.algorithm import Context
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec

ROWS = 256
FEATURES = 4
ACTIONS = 2


@dataclass(frozen=True)
class ForeignConfig(rl.Config):
    clip_range: float = 0.2
    by_rules: bool = False  # whether its author says `in_numpy`


class Foreign(rl.Algorithm[rl.Samples]):
    """PPO's minibatch as its author knows it from torch."""

    Config = ForeignConfig
    config: ForeignConfig

    def build(self) -> None:
        self.networks = rl.PolicyAndCritic(self.spec, rl.Net())
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.adam = self.optimizer(
            "adam", [self.policy, self.critic], learning_rate=3e-4, max_grad_norm=0.5
        )

    def learn(self, batch: rl.Samples, now: ForeignConfig, clock: rl.Clock) -> rl.Result:
        loss, metrics = self.loss(
            self.in_numpy(batch, self.networks) if now.by_rules else batch, now
        )
        return rl.Result({**metrics, "loss/gradient_norm": self.adam.minimize(loss, clock)})

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        outputs, value = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        log_ratio = log_prob - batch.extras["log_prob"]
        ratio = torch.exp(log_ratio)
        clipped = torch.clamp(ratio, 1 - now.clip_range, 1 + now.clip_range)
        policy_loss = torch.max(-batch.advantage * ratio, -batch.advantage * clipped)
        value_loss = (value - batch.target) ** 2
        loss = batch.mean(policy_loss + 0.5 * value_loss - 0.01 * entropy)
        terms = {
            "policy": policy_loss,
            "value": value_loss,
            "entropy": entropy,
            "kl": ratio - 1 - log_ratio,
        }
        return loss, {f"loss/{name}": batch.mean(term.detach()) for name, term in terms.items()}


def samples() -> rl.Samples:
    drawn = np.random.default_rng(1)
    numbers = [torch.from_numpy(drawn.standard_normal(ROWS, dtype=np.float32)) for _ in range(3)]
    obs = torch.from_numpy(drawn.standard_normal((ROWS, FEATURES), dtype=np.float32))
    action = torch.from_numpy(drawn.integers(ACTIONS, size=ROWS))
    return rl.Samples(
        torch.ones(ROWS), None, obs, action, *numbers[:2], {"log_prob": 0.1 * numbers[2] - 0.7}
    )


def learner(config: ForeignConfig) -> Any:
    box = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
    return Foreign(Spec(box, spaces.Discrete(ACTIONS), 8, "Any-v0"), config, Context(Seeds(1)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the table into RESULTS.md too")
    given = parser.parse_args()
    set_torch(1)
    batch = samples()
    clock = rl.Clock(10**6)
    learners = {
        name: learner(ForeignConfig(by_rules=name != "autograd")) for name in ("autograd", "rules")
    }
    found = least(
        {name: lambda made=made: made.update(batch, clock) for name, made in learners.items()}
    )  # type: ignore[misc]
    rows = [
        [name, f"{found[name]:,.0f}", f"**{found['autograd'] / found[name]:.2f}**"]
        for name in learners
    ]
    text = f"""## A loss written for torch

`python bench/foreign.py`

{table(["differentiated by", "update, µs", "times as fast"], rows)}

The least of 60 turns on one thread. {machine()}; rlplug at {revision()}."""
    print(text)
    if given.write:
        write_section("foreign", text)


if __name__ == "__main__":
    main()
