"""What the framework costs: A2C through rlplug against the same maths in one plain script, alternating.

    python bench/overhead.py [--pairs 11] [--steps 10000]

Both sides step the same Gymnasium environments, act in numpy on views of flat parameters, estimate with the same
recursion, and take the same fused RMSProp step. The difference is protocols, dataclasses, buffers, clock, and events.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from results import machine, write_section
from torch import nn

from rlplug_core.clock import Clock
from rlplug_core.config.run_options import RunOptions
from rlplug_core.learning.optimizer import flatten
from rlplug_core.loop.build import build
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.events import Events, Progress
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.types import Result

GAMMA, STEPS, ENTROPY, VALUE, CLIP, LR = 0.99, 5, 0.01, 0.5, 0.5, 7e-4


def bare(rows: int, total: int, learn: bool) -> float:
    """A2C on CartPole without any framework; seconds for `total` vector steps, with learning or without."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    envs = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(rows)]
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    flat, gradient = flatten([*policy.parameters(), *critic.parameters()])
    square = torch.zeros_like(flat)
    layers = [[(m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in net if isinstance(m, nn.Linear)]
              for net in (policy, critic)]  # fmt: skip

    def forward(net: int, values: Any) -> Any:
        (w0, b0), (w1, b1), (w2, b2) = layers[net]
        values = values.dot(w0)
        values += b0
        np.tanh(values, out=values)
        values = values.dot(w1)
        values += b1
        np.tanh(values, out=values)
        values = values.dot(w2)
        values += b2
        return values

    all_obs = np.zeros((STEPS + 1, rows, 4), np.float32)
    actions, rewards = np.zeros((STEPS, rows), np.int64), np.zeros((STEPS, rows), np.float32)
    terminated, ended = np.zeros((STEPS, rows), bool), np.zeros((STEPS, rows), bool)
    noise, used = rng.gumbel(size=(256, rows, 2)).astype(np.float32), 0
    returns: list[float] = []
    running = [0.0] * rows
    obs = np.stack([env.reset(seed=row)[0] for row, env in enumerate(envs)])
    began = time.perf_counter()
    for _ in range(total // STEPS):
        cuts: list[tuple[int, int, Any]] = []
        for t in range(STEPS):
            all_obs[t] = obs
            if used == 256:
                noise, used = rng.gumbel(size=(256, rows, 2)).astype(np.float32), 0
            action = (forward(0, obs) + noise[used]).argmax(-1)
            used += 1
            actions[t] = action
            choices = action.tolist()
            for row, env in enumerate(envs):
                seen, reward, dead, cut, _ = env.step(choices[row])
                rewards[t, row], terminated[t, row], ended[t, row] = reward, dead, dead or cut
                running[row] += reward
                if dead or cut:
                    if cut and not dead:
                        cuts.append((t, row, seen))
                    returns.append(running[row])
                    running[row] = 0.0
                    seen, _ = env.reset()
                obs[row] = seen
        all_obs[STEPS] = obs
        if not learn:
            continue
        values = forward(1, all_obs.reshape(-1, 4)).reshape(STEPS + 1, rows)
        successor = values[1:]
        if cuts:
            successor = successor.copy()
            for t, row, seen in cuts:
                successor[t, row] = forward(1, seen[None])[0, 0]
        value = values[:-1]
        delta = rewards + GAMMA * successor * ~terminated - value
        decay = GAMMA * ~ended
        advantage = np.empty_like(delta)
        follow = np.zeros(rows, np.float32)
        for t in range(STEPS - 1, -1, -1):
            follow = delta[t] + decay[t] * follow
            advantage[t] = follow
        target = torch.from_numpy((advantage + value).reshape(-1))
        batch, act = torch.from_numpy(all_obs[:-1].reshape(-1, 4)), torch.from_numpy(actions.reshape(-1))
        gain = torch.from_numpy(advantage.reshape(-1))
        log_probs = policy(batch).log_softmax(-1)
        chosen = log_probs.gather(-1, act.unsqueeze(-1)).squeeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = (
            -(chosen * gain).mean() - ENTROPY * entropy + VALUE * (critic(batch).squeeze(-1) - target).square().mean()
        )
        loss.backward()
        norm = torch.linalg.vector_norm(gradient)
        gradient.mul_((CLIP / (norm + 1e-6)).clamp_(max=1.0))
        square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        flat.addcdiv_(gradient, (square + 1e-5).sqrt_(), value=-LR)
        gradient.zero_()
    return time.perf_counter() - began


class Nothing:
    """Takes events and keeps none; the journal's own cost is a record per hundredth of a run."""

    def record(self, kind: str, step: int, data: Mapping[str, Any]) -> None: ...
    def evaluate(self, learner: Any) -> Evaluation: ...  # type: ignore[empty-body]
    def checkpoint(self, kind: str, step: int, components: Mapping[str, Any], reason: str) -> None: ...
    def watch(self, progress: Progress) -> None: ...


def framework(rows: int, total: int, learn: bool) -> float:
    """The same through rlplug's plan, runner and events; seconds for `total` vector steps."""
    never = 10**12
    options = {
        "total_timesteps": total * rows, "num_envs": rows, "gae_lambda": 1.0, "n_steps": STEPS, "learning_rate": LR,
    }  # fmt: skip
    plan = Plan.make("a2c", "CartPole-v1", options)
    clock = Clock(total * rows)
    runner = build(plan, clock)
    if not learn:
        runner.snapshot().update = lambda batch, clock: Result({})  # type: ignore[method-assign]
    run = RunOptions(total_timesteps=total * rows, eval_every=never, checkpoint_every=never)
    events = Events(runner, run, Nothing())
    began = time.perf_counter()
    runner.run(events.poll)
    seconds = time.perf_counter() - began
    runner.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--steps", type=int, default=10_000, help="vector steps per run")
    asked = parser.parse_args()
    set_torch(1)
    lines = [
        "| rows | what | bare, µs per vector step | rlplug | added (median of pairs) | share of the whole | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows, learn, bar in ((1, False, "≤ 6 µs"), (1, True, "≤ 6 µs"), (8, False, ""), (8, True, "≤ 10 %")):
        total = asked.steps
        bare(rows, 2_000, learn), framework(rows, 2_000, learn)
        pairs = [(bare(rows, total, learn), framework(rows, total, learn)) for _ in range(asked.pairs)]
        ours, theirs = [f / total * 1e6 for _, f in pairs], [b / total * 1e6 for b, _ in pairs]
        added = statistics.median(f - b for f, b in zip(ours, theirs, strict=True))
        share = statistics.median(f / b - 1 for f, b in zip(ours, theirs, strict=True))
        what = "act, step, store, learn" if learn else "act, step, store"
        bare_us, rlplug_us = statistics.median(theirs), statistics.median(ours)
        lines.append(f"| {rows} | {what} | {bare_us:.1f} | {rlplug_us:.1f} | {added:.1f} µs | {share:.1%} | {bar} |")
    table = "\n".join(lines)
    print(table)
    write_section("overhead", f"{machine()}\n\n`python bench/overhead.py --pairs {asked.pairs}`\n\n{table}")


if __name__ == "__main__":
    main()
