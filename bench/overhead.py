"""Measure the cost of the framework: A2C in rlplug and the same computation in one plain script, in turns.

    python bench/overhead.py [--pairs 11] [--steps 10000]

Both sides step the same Gymnasium environments, act in NumPy on views of flat parameters, use the same advantage
recursion and the same fused RMSProp. The difference is protocols, dataclasses, buffers, clock and events.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from results import machine, revision, write_section
from torch import Tensor, nn

from rlplug_core.clock import Clock
from rlplug_core.config.run_options import RunOptions
from rlplug_core.learning.optimizer import flatten
from rlplug_core.loop.build import build
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.events import Events, Progress
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.types import Result

#: The explanation below the table.
NOTE = """\
The bare loop is one plain script with the same environments, the same flat parameters, acting in NumPy, the same
recursion and fused RMSProp. It uses autograd; rlplug computes gradients in NumPy. The bar is missed without learning.
The other costs of a step are acting, storing, and the search for NaN in every observation and reward, which takes 2 to
4 µs for 1 environment and about 5 µs for 8."""

GAMMA = 0.99
STEPS = 5
ENTROPY = 0.01
VALUE = 0.5
CLIP = 0.5
LR = 7e-4


def bare(num_envs: int, total: int, learn: bool) -> float:
    """Run A2C on CartPole without a framework; return the seconds for `total` vector steps."""
    torch.manual_seed(1)
    policy = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    critic = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    flat, gradient = flatten([*policy.parameters(), *critic.parameters()])
    square = torch.zeros_like(flat)
    scores = host_forward(policy)
    value = host_forward(critic)
    acting = Acting(num_envs, scores)
    start = time.perf_counter()
    for _ in range(total // STEPS):
        acting.collect()
        if learn:
            loss_of(acting, policy, critic, value).backward()
            rmsprop(flat, gradient, square)
    return time.perf_counter() - start


def host_forward(network: nn.Sequential) -> Callable[[Any], Any]:
    """Return the network as a NumPy function on views of its parameters, [B, 4] to [B, outputs]."""
    layers = [
        (m.weight.detach().numpy().T, m.bias.detach().numpy())
        for m in network
        if isinstance(m, nn.Linear)
    ]
    (w0, b0), (w1, b1), (w2, b2) = layers

    def forward(values: Any) -> Any:
        values = values.dot(w0)
        values += b0
        np.tanh(values, out=values)
        values = values.dot(w1)
        values += b1
        np.tanh(values, out=values)
        values = values.dot(w2)
        values += b2
        return values

    return forward


class Acting:
    """Environments and the arrays of their last rollout."""

    def __init__(self, num_envs: int, scores: Callable[[Any], Any]) -> None:
        self.rng = np.random.default_rng(1)
        self.scores = scores
        self.num_envs = num_envs
        self.envs = [
            gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(num_envs)
        ]
        self.all_obs = np.zeros((STEPS + 1, num_envs, 4), np.float32)
        self.actions = np.zeros((STEPS, num_envs), np.int64)
        self.rewards = np.zeros((STEPS, num_envs), np.float32)
        self.terminated = np.zeros((STEPS, num_envs), bool)
        self.ended = np.zeros((STEPS, num_envs), bool)
        #: Step, environment and true successor of each truncation.
        self.cuts: list[tuple[int, int, Any]] = []
        self.draw()
        self.returns: list[float] = []
        self.running = [0.0] * num_envs
        self.obs = np.stack([env.reset(seed=number)[0] for number, env in enumerate(self.envs)])

    def draw(self) -> None:
        """Draw Gumbel noise for the next 256 steps."""
        self.noise = self.rng.gumbel(size=(256, self.num_envs, 2)).astype(np.float32)
        self.used = 0

    def collect(self) -> None:
        """Collect a rollout of `STEPS` steps."""
        obs = self.obs
        rewards = self.rewards
        terminated = self.terminated
        ended = self.ended
        running = self.running
        self.cuts = cuts = []
        for t in range(STEPS):
            self.all_obs[t] = obs
            if self.used == 256:
                self.draw()
            action = (self.scores(obs) + self.noise[self.used]).argmax(-1)
            self.used += 1
            self.actions[t] = action
            choices = action.tolist()
            for number, env in enumerate(self.envs):
                seen, reward, dead, cut, _ = env.step(choices[number])
                rewards[t, number] = reward
                terminated[t, number] = dead
                ended[t, number] = dead or cut
                running[number] += reward
                if dead or cut:
                    if cut and not dead:
                        cuts.append((t, number, seen))
                    self.returns.append(running[number])
                    running[number] = 0.0
                    seen, _ = env.reset()
                obs[number] = seen
        self.all_obs[STEPS] = obs


def loss_of(
    acting: Acting, policy: nn.Module, critic: nn.Module, value_of: Callable[[Any], Any]
) -> Tensor:
    """Return A2C's loss of the last rollout."""
    advantage, value = returns(acting, value_of)
    target = torch.from_numpy((advantage + value).reshape(-1))
    batch = torch.from_numpy(acting.all_obs[:-1].reshape(-1, 4))
    act = torch.from_numpy(acting.actions.reshape(-1))
    gain = torch.from_numpy(advantage.reshape(-1))
    log_probs = policy(batch).log_softmax(-1)
    chosen = log_probs.gather(-1, act.unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    error = critic(batch).squeeze(-1) - target
    loss: Tensor = -(chosen * gain).mean() - ENTROPY * entropy + VALUE * error.square().mean()
    return loss


def returns(acting: Acting, value_of: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return advantages of bootstrapped returns and values, both [STEPS, N]."""
    values = value_of(acting.all_obs.reshape(-1, 4)).reshape(STEPS + 1, acting.num_envs)
    value = values[:-1]
    successor = values[1:]
    if acting.cuts:
        successor = successor.copy()
        for t, number, seen in acting.cuts:
            successor[t, number] = value_of(seen[None])[0, 0]
    delta = acting.rewards + GAMMA * successor * ~acting.terminated - value
    decay = GAMMA * ~acting.ended
    advantage = np.empty_like(delta)
    follow = np.zeros(acting.num_envs, np.float32)
    for t in range(STEPS - 1, -1, -1):
        follow = delta[t] + decay[t] * follow
        advantage[t] = follow
    return advantage, value


def rmsprop(flat: Tensor, gradient: Tensor, square: Tensor) -> None:
    """Clip the gradient and do one RMSProp step, in place."""
    norm = torch.linalg.vector_norm(gradient)
    gradient.mul_((CLIP / (norm + 1e-6)).clamp_(max=1.0))
    square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
    flat.addcdiv_(gradient, (square + 1e-5).sqrt_(), value=-LR)
    gradient.zero_()


class IgnoreEvents:
    """Ignores all events; a real journal gets one record per hundredth of a run."""

    def record(self, kind: str, step: int, data: Mapping[str, Any]) -> None: ...
    def evaluate(self, learner: Any) -> Evaluation: ...  # type: ignore[empty-body]
    def checkpoint(
        self, kind: str, step: int, components: Mapping[str, Any], reason: str
    ) -> None: ...
    def watch(self, progress: Progress) -> None: ...


def framework(num_envs: int, total: int, learn: bool) -> float:
    """Run the same with rlplug's plan, runner and events; return the seconds for `total` vector steps."""
    never = 10**12
    options = {
        "total_timesteps": total * num_envs,
        "num_envs": num_envs,
        "gae_lambda": 1.0,
        "n_steps": STEPS,
        "learning_rate": LR,
    }
    plan = Plan.make("a2c", "CartPole-v1", options)
    clock = Clock(total * num_envs)
    runner = build(plan, clock)
    if not learn:
        runner.snapshot().update = lambda batch, clock: Result({})  # type: ignore[method-assign]
    run = RunOptions(total_timesteps=total * num_envs, eval_every=never, checkpoint_every=never)
    events = Events(runner, run, IgnoreEvents())
    start = time.perf_counter()
    runner.run(events.poll)
    seconds = time.perf_counter() - start
    runner.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--steps", type=int, default=10_000, help="vector steps per run")
    arguments = parser.parse_args()
    set_torch(1)
    lines = [
        "| environments | what | bare, µs per vector step | rlplug | added (median) | share | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for num_envs, learn, bar in (
        (1, False, "≤ 6 µs"),
        (1, True, "≤ 6 µs"),
        (8, False, ""),
        (8, True, "≤ 10 %"),
    ):
        total = arguments.steps
        bare(num_envs, 2_000, learn)
        framework(num_envs, 2_000, learn)
        pairs = [
            (bare(num_envs, total, learn), framework(num_envs, total, learn))
            for _ in range(arguments.pairs)
        ]
        ours = [f / total * 1e6 for _, f in pairs]
        theirs = [b / total * 1e6 for b, _ in pairs]
        added = statistics.median(f - b for f, b in zip(ours, theirs, strict=True))
        share = statistics.median(f / b - 1 for f, b in zip(ours, theirs, strict=True))
        what = "act, step, store, learn" if learn else "act, step, store"
        bare_us = statistics.median(theirs)
        rlplug_us = statistics.median(ours)
        lines.append(
            f"| {num_envs} | {what} | {bare_us:.1f} | {rlplug_us:.1f} | {added:.1f} µs | {share:.1%} | {bar} |"
        )
    table = "\n".join(lines)
    print(table)
    measured = f"medians of {arguments.pairs} alternating pairs of {arguments.steps:,} steps"
    parts = ("## Overhead over the bare loop", "`python bench/overhead.py`", table, NOTE)
    write_section(
        "overhead", "\n\n".join([*parts, f"{machine()}; rlplug at {revision()}; {measured}."])
    )


if __name__ == "__main__":
    main()
