"""How near are the updates of SAC and TD3 to their bare maths? One plain script beside the learners, in turn.

    python bench/limits.py              # 2 threads, a minute
    python bench/limits.py --threads 1

The script has what an update cannot do without: the networks forward and backward, fused Adam and Polyak averaging on
flat parameters; its matrices are multiplied by the library that rlplug would choose (`products.py`). It draws no batch,
reports no metric, knows no weights, and never asks what kind of space it has.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from results import machine, revision, table, write_section
from torch import Tensor
from torch.nn.functional import softplus
from torch.optim.adam import adam

from rlplug_core.algorithm import Context
from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.nets.products import linear
from rlplug_core.plugins.presets import resolve
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec

#: HalfCheetah's spaces, and the sizes that are usual for it.
OBS = 17
ACTION = 6
HIDDEN = 256
BATCH = 256
LR = 3e-4
GAMMA = 0.99
TAU = 0.005
#: Batches that are made beforehand, one for each update of a turn.
BATCHES = 16


class Layers:
    """Two hidden layers of ReLUs and an output, with a flat gradient."""

    def __init__(self, inputs: int, outputs: int) -> None:
        sizes = [(inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, outputs)]
        self.parts = [
            part for a, b in sizes for part in (torch.randn(b, a) / math.sqrt(a), torch.zeros(b))
        ]

    def __call__(self, x: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = self.parts
        return linear(linear(linear(x, w1, b1).relu_(), w2, b2).relu_(), w3, b3)


class Trained:
    """Networks whose parameters and gradients are flat, and Adam."""

    def __init__(self, *networks: Layers, extra: Sequence[Tensor] = ()) -> None:
        self.networks = networks
        self.extra = extra
        parts = [part for network in networks for part in network.parts] + list(extra)
        self.flat = torch.cat([part.reshape(-1) for part in parts])
        self.gradient, self.mean, self.square = (torch.zeros_like(self.flat) for _ in range(3))
        self.steps = torch.zeros(())
        ends = np.cumsum([0, *(part.numel() for part in parts)]).tolist()
        self.leaves: list[Tensor] = []
        for part, begin, end in zip(parts, ends, ends[1:], strict=False):
            leaf = self.flat[begin:end].view(part.shape).requires_grad_()
            leaf.grad = self.gradient[begin:end].view(part.shape)
            self.leaves.append(leaf)
        for number, network in enumerate(networks):
            network.parts = self.leaves[6 * number : 6 * number + 6]

    def target(self) -> tuple[Tensor, list[Layers]]:
        """A copy of the networks, with its flat parameters."""
        flat = self.flat.clone()
        copies = []
        begin = 0
        for network in self.networks:
            copy = object.__new__(Layers)
            copy.parts = []
            for part in network.parts:
                copy.parts.append(flat[begin : begin + part.numel()].view(part.shape))
                begin += part.numel()
            copies.append(copy)
        return flat, copies

    def freeze(self, frozen: bool) -> None:
        """Whether the parameters want no gradient, as the critics' in the policy's loss."""
        for leaf in self.leaves:
            leaf.requires_grad = not frozen

    def minimize(self, loss: Tensor) -> None:
        loss.backward(inputs=self.leaves)
        with torch.no_grad():
            adam(
                [self.flat],
                [self.gradient],
                [self.mean],
                [self.square],
                [],
                [self.steps],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=LR,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )
        self.gradient.zero_()


def sac() -> Callable[[Transitions, Tensor], None]:
    """One update of SAC with a learned temperature."""
    policy = Layers(OBS, 2 * ACTION)
    critics = [Layers(OBS + ACTION, 1) for _ in range(2)]
    temperature = torch.zeros(1)
    actor = Trained(policy, extra=[temperature])
    critic = Trained(*critics)
    temperature = actor.leaves[-1]
    flat, targets = critic.target()

    def draw(obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = policy(obs).chunk(2, 1)
        log_std = log_std.clamp(-20, 2)
        before = mean + log_std.exp() * noise
        slope = 2 * (math.log(2) - before - softplus(-2 * before))
        return before.tanh(), (
            -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - slope
        ).sum(1)

    def lowest(networks: Sequence[Layers], obs: Tensor, action: Tensor) -> Tensor:
        both = torch.cat([obs, action], 1)
        first, second = (network(both).squeeze(1) for network in networks)
        return torch.minimum(first, second)

    def update(batch: Transitions, noise: Tensor) -> None:
        with torch.no_grad():
            alpha = temperature.exp()
            action, log_prob = draw(batch.next_obs, noise[0])
            soft = lowest(targets, batch.next_obs, action) - alpha * log_prob
            target = batch.reward + batch.discount * soft
        both = torch.cat([batch.obs, batch.action], 1)
        critic.minimize(
            sum(0.5 * (each(both).squeeze(1) - target).square().mean() for each in critics)
        )
        critic.freeze(True)
        action, log_prob = draw(batch.obs, noise[1])
        value = lowest(critics, batch.obs, action)
        critic.freeze(False)
        missing = temperature * (log_prob.detach() - ACTION)
        actor.minimize((alpha * log_prob - value - missing).mean())
        flat.lerp_(critic.flat, TAU)

    return update


def td3() -> Callable[[Transitions, Tensor], None]:
    """One update of TD3, every second one with the policy's."""
    policy = Layers(OBS, ACTION)
    critics = [Layers(OBS + ACTION, 1) for _ in range(2)]
    actor = Trained(policy)
    critic = Trained(*critics)
    (flat_policy, (target_policy,)), (flat, targets) = actor.target(), critic.target()
    count = 0

    def update(batch: Transitions, noise: Tensor) -> None:
        nonlocal count
        with torch.no_grad():
            action = (
                target_policy(batch.next_obs).tanh() + (0.2 * noise[0]).clamp(-0.5, 0.5)
            ).clamp(-1, 1)
            both = torch.cat([batch.next_obs, action], 1)
            first, second = (each(both).squeeze(1) for each in targets)
            target = batch.reward + batch.discount * torch.minimum(first, second)
        both = torch.cat([batch.obs, batch.action], 1)
        critic.minimize(
            sum(0.5 * (each(both).squeeze(1) - target).square().mean() for each in critics)
        )
        count += 1
        if count % 2 == 0:
            critic.freeze(True)
            value = critics[0](torch.cat([batch.obs, policy(batch.obs).tanh()], 1))
            critic.freeze(False)
            actor.minimize(-value.mean())
            flat_policy.lerp_(actor.flat, TAU)
            flat.lerp_(critic.flat, TAU)

    return update


def bare(
    make: Callable[[], Callable[[Transitions, Tensor], None]],
) -> Callable[[Transitions], None]:
    """The script's update, with its noise drawn as the learner's is."""
    torch.manual_seed(1)
    update = make()
    generator = np.random.default_rng(1)

    def step(batch: Transitions) -> None:
        update(
            batch, torch.from_numpy(generator.standard_normal((2, BATCH, ACTION), dtype=np.float32))
        )

    return step


def ours(name: str) -> Callable[[Transitions], None]:
    """The learner's update, with what the presets say for HalfCheetah but the script's sizes."""
    values, _ = resolve(
        name,
        "HalfCheetah-v5",
        {"net.hidden": [HIDDEN, HIDDEN], "learning_rate": LR, "critic_learning_rate": LR},
    )
    plan = Plan.make(name, "HalfCheetah-v5", values)
    box = spaces.Box(-np.inf, np.inf, (OBS,), np.float32), spaces.Box(-1, 1, (ACTION,), np.float32)
    learner: Any = plan.learner(Spec(*box, 1, "HalfCheetah-v5", ""), plan.config, Context(Seeds(1)))
    clock = Clock(10**9)

    def step(batch: Transitions) -> None:
        batch.extras = {}
        learner.update(batch, clock)
        clock.updates += 1

    return step


def batches() -> list[Transitions]:
    """Random transitions as replay gives them; real ones cost the same."""
    rng = np.random.default_rng(2)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    def made() -> Transitions:
        weight = torch.ones(BATCH)
        discount = torch.full((BATCH,), GAMMA)
        obs = (normal(BATCH, OBS), normal(BATCH, OBS))
        action = normal(BATCH, ACTION).tanh()
        return Transitions(
            weight=weight,
            share=weight / BATCH,
            obs=obs[0],
            action=action,
            reward=normal(BATCH),
            discount=discount,
            next_obs=obs[1],
            index=torch.arange(BATCH),
            extras={},
        )

    return [made() for _ in range(BATCHES)]


def milliseconds(step: Callable[[Transitions], None], data: Sequence[Transitions]) -> float:
    """For one update, by the wall clock."""
    started = time.perf_counter()
    for batch in data:
        step(batch)
    return 1000 * (time.perf_counter() - started) / len(data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=101, help="turns of sixteen updates each")
    parser.add_argument(
        "--write", action="store_true", help="write the table into bench/RESULTS.md too"
    )
    given = parser.parse_args()
    set_torch(given.threads)
    data = batches()
    rows = []
    for name, make in (("sac", sac), ("td3", td3)):
        sides = bare(make), ours(name)
        turns = [[milliseconds(side, data) for side in sides] for _ in range(given.pairs + 1)][1:]
        limit, mine = (statistics.median(turn[side] for turn in turns) for side in (0, 1))
        ratio = statistics.median(turn[1] / turn[0] for turn in turns)
        rows.append(
            [name, f"{limit:.2f}", f"{mine:.2f}", f"**{ratio:.2f}**", f"{mine - limit:.2f}"]
        )
    header = [
        "algorithm",
        "bare maths, ms per update",
        "rlplug, ms",
        "ratio (median of pairs)",
        "difference, ms",
    ]
    text = f"""## Updates beside their bare maths

`python bench/limits.py`

{table(header, rows)}

Two hidden layers of {HIDDEN}, batches of {BATCH}, HalfCheetah's spaces, {given.threads} threads; medians of
{given.pairs} alternating turns of {BATCHES} updates. {machine()}; rlplug at {revision()}."""
    print(text)
    if given.write:
        write_section("limits", text)


if __name__ == "__main__":
    main()
