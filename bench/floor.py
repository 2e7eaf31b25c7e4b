"""Compare updates with the fastest possible ones: `floor.c` and the learners in turns, on one thread.

    python bench/floor.py               # needs a C compiler
    python bench/floor.py --only ppo

The floor is one minibatch in C: the networks forward and backward, the gradient of the loss, clipping and Adam. SAC's
samples and log-probabilities are NumPy. It gathers no minibatch, reports no metrics and checks nothing.
"""

# ruff: noqa: E402  # threads are set before numpy is imported
from __future__ import annotations

import os

from rlplug_core.processor import configure_openblas

os.environ["OMP_NUM_THREADS"] = "1"
configure_openblas()

import argparse
import ctypes
import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import by_libraries
import gymnasium
import gymnasium.spaces as spaces
import numpy as np
import torch
from by_hand import Minibatch, Update
from peers import ROWS
from results import machine, revision, table, write_section
from turns import Calls, least

import rlplug_core as rl
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.types import Array, Spec

FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
NOTE = """Minimum of 60 turns on one thread. The floor is one minibatch in compiled C without a matrix library:
networks of 64 units are close to it, networks of 256 units are faster. "By hand" is the same minibatch in NumPy,
written only for these two networks (`by_hand.py`); rlplug without numba is slower. "By libraries" is only the matrix
products and Adam of the update, each product with the fastest of three libraries (`by_libraries.py`); it is the floor
of networks of 256 units. Measured on a processor with AVX-512, with numba. The bar for PPO's minibatch is 1.8; without
numba it took 388 µs there, 1.82 times the floor. On a processor without AVX-512 the last column was 1.83, 1.33 and
1.18; twelve runs of `--only ppo` there, in random order, gave 1.69 to 1.94 with a median of 1.77."""


class Net:
    """One network of the floor, compiled for its shape."""

    def __init__(self, batch: int, inputs: int, hidden: int, outputs: int, relu: bool) -> None:
        self.shape = batch, inputs, hidden, outputs
        self.size = inputs * hidden + hidden + hidden * hidden + hidden + outputs * hidden + outputs
        macros = [f"-D{name}={value}" for name, value in zip("BIHO", self.shape, strict=True)] + [
            "-DRELU"
        ] * relu
        place = Path(tempfile.mkdtemp()) / "floor.so"
        source = Path(__file__).with_name("floor.c")
        subprocess.run(
            [os.environ.get("CC", "cc"), *FLAGS, *macros, str(source), "-o", str(place), "-lm"],
            check=True,
        )
        self.c = ctypes.CDLL(str(place))
        self.activations = np.zeros(2 * batch * hidden + batch * outputs, np.float32)
        self.out = self.activations[2 * batch * hidden :].reshape(batch, outputs)

    def forward(self, weights: Array, obs: Array) -> Array:
        self.c.up(pointer(weights), pointer(obs), pointer(self.activations))
        return self.out

    def backward(
        self,
        weights: Array,
        gradient: Array | None,
        obs: Array,
        output_gradient: Array,
        inputs: Array | None = None,
    ) -> None:
        """Write the gradient of the weights and that of the last inputs, unless their arrays are None."""
        arrays = (weights, gradient, obs, self.activations, output_gradient, inputs)
        first = self.shape[1] - (0 if inputs is None else inputs.shape[1])
        self.c.down(*map(pointer, arrays), ctypes.c_int(first))

    def regress(
        self, target: Array, gradient: Array, action: Array | None = None, huber: bool = False
    ) -> None:
        """Write the gradient of half the squared error, or of the Huber loss, at the outputs of the last forward pass.

        Args:
            action: [B] the output of each row that is compared; None for the only one.
        """
        half = ctypes.c_float(0.5)
        arrays = (self.out, action, target)
        self.c.regress(*map(pointer, arrays), half, ctypes.c_int(huber), pointer(gradient))


class Flat:
    """Parameters of several networks in one array, their gradient and Adam's moments."""

    def __init__(self, *nets: Net) -> None:
        ends = np.cumsum([net.size for net in nets])
        self.all = [
            np.random.default_rng(1).normal(0, 0.1, ends[-1]).astype(np.float32),
            *np.zeros((3, ends[-1]), np.float32),
        ]
        self.parts = [
            [part[end - net.size : end] for part in self.all[:2]]
            for net, end in zip(nets, ends, strict=True)
        ]
        self.count = 0
        self.c = nets[0].c

    def step(self, norm: float, lr: float) -> None:
        self.count += 1
        numbers = (norm, lr, 1e-8, 1 - 0.9**self.count, 1 - 0.999**self.count)
        self.c.step(
            *map(pointer, self.all), ctypes.c_int(len(self.all[0])), *map(ctypes.c_float, numbers)
        )


def pointer(array: Array | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


def make_learner(name: str, obs: int, action: spaces.Space[Any], options: dict[str, Any]) -> Any:
    plan = Plan.make(name, "CartPole-v1", {"seed": 1, **options})
    return plan.make_learner(
        Spec(spaces.Box(-np.inf, np.inf, (obs,), np.float32), action, 8, "Any-v0")
    )


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


class Rollout:
    """Samples of a rollout and the floor of one minibatch: a discrete policy and a critic, 64-64 tanh."""

    def __init__(self, batch: int, inputs: int = 4, outputs: int = 2) -> None:
        self.obs = numbers(batch, inputs)
        self.old = numbers(batch) * 0.1 - 0.7
        self.target = numbers(batch) * 2
        self.advantage = numbers(batch)
        self.action = np.arange(batch) % outputs
        self.policy = Net(batch, inputs, 64, outputs, False)
        self.critic = Net(batch, inputs, 64, 1, False)
        self.flat = Flat(self.policy, self.critic)
        self.logit_gradient = np.zeros((batch, outputs), np.float32)
        self.value_gradient = np.zeros((batch, 1), np.float32)

    def floor(self) -> None:
        policy = self.policy
        critic = self.critic
        (policy_weights, policy_gradient), (critic_weights, critic_gradient) = self.flat.parts
        policy.forward(policy_weights, self.obs)
        critic.forward(critic_weights, self.obs)
        samples = map(pointer, (policy.out, self.action, self.old, self.advantage))
        policy.c.clipped(*samples, ctypes.c_float(0.2), pointer(self.logit_gradient))
        policy.backward(policy_weights, policy_gradient, self.obs, self.logit_gradient)
        critic.regress(self.target, self.value_gradient)
        critic.backward(critic_weights, critic_gradient, self.obs, self.value_gradient)
        self.flat.step(0.5, 3e-4)


def ppo() -> Calls:
    """256 samples, two networks with two layers of 64 tanh, two actions."""
    ppo_learner = make_learner(
        "ppo",
        4,
        spaces.Discrete(2),
        {"net.hidden": [64, 64], "net.activation": "tanh", "ent_coef": 0.0},
    )
    rollout = Rollout(256)
    arrays = (rollout.obs, rollout.action, rollout.advantage, rollout.target)
    tensors: Any = [torch.from_numpy(array) for array in arrays]
    extras = {"log_prob": torch.from_numpy(rollout.old)}
    batch = rl.Samples(torch.ones(256), None, *tensors, extras)
    return {
        "rlplug": lambda: ppo_learner.actor_critic_optimizer.minimize(
            ppo_learner.loss(batch, ppo_learner.config)[0], rl.Clock(10**6)
        ),
        "by hand": Minibatch(*arrays, rollout.old, actions=2),
        "floor": rollout.floor,
    }


def transitions(batch: int, obs: int, action: Array) -> rl.Transitions:
    discount = np.full(batch, 0.99, np.float32)
    index = np.arange(batch)
    arrays = (
        np.ones(batch, np.float32),
        numbers(batch, obs),
        action,
        numbers(batch),
        discount,
        numbers(batch, obs),
        index,
    )
    tensors: Any = [torch.from_numpy(array) for array in arrays]
    found: rl.Transitions = rl.Transitions(tensors[0], None, *tensors[1:], {})
    return found


def dqn() -> Calls:
    """64 samples, two layers of 256 ReLU, two actions, Huber loss, a target network."""
    options = {"net.hidden": [256, 256], "net.activation": "relu", "double": False, "n_step": 1}
    dqn_learner = make_learner("dqn", 4, spaces.Discrete(2), options)
    batch = transitions(64, 4, np.arange(64) % 2)
    arrays = [array.numpy() for array in (batch.obs, batch.next_obs, batch.action, batch.reward)]
    return {
        "rlplug": lambda: dqn_learner.update(batch, rl.Clock(10**6)),
        "by hand": Update(*arrays, actions=2),
        "floor": DqnFloor(*arrays),
    }


class DqnFloor:
    """The floor of an update of DQN."""

    def __init__(self, obs: Array, next_obs: Array, action: Array, reward: Array) -> None:
        self.obs = obs
        self.next_obs = next_obs
        self.action = action
        self.reward = reward
        self.online = Net(64, 4, 256, 2, True)
        self.target = Net(64, 4, 256, 2, True)
        self.flat = Flat(self.online)
        self.weights, self.gradient = self.flat.parts[0]
        self.target_weights = Flat(self.target).parts[0][0]
        self.output_gradient = np.zeros((64, 2), np.float32)

    def __call__(self) -> None:
        next_value = self.target.forward(self.target_weights, self.next_obs).max(1)
        self.online.forward(self.weights, self.obs)
        target = self.reward + 0.99 * next_value
        self.online.regress(target, self.output_gradient, self.action, huber=True)
        self.online.backward(self.weights, self.gradient, self.obs, self.output_gradient)
        self.flat.step(10.0, 1e-4)


def sac() -> Calls:
    """256 samples, a policy and two critics with two layers of 256 ReLU, 17 inputs and 6 actions."""
    action = spaces.Box(-1, 1, (6,), np.float32)
    sac_learner = make_learner(
        "sac", 17, action, {"net.hidden": [256, 256], "net.activation": "relu"}
    )
    batch = transitions(256, 17, np.tanh(numbers(256, 6)))
    arrays = [array.numpy() for array in (batch.obs, batch.next_obs, batch.action, batch.reward)]
    return {
        "rlplug": lambda: sac_learner.update(batch, rl.Clock(10**6)),
        "floor": SacFloor(*arrays),
    }


class SacFloor:
    """The floor of an update of SAC; samples and log-probabilities are NumPy."""

    def __init__(self, obs: Array, next_obs: Array, action: Array, reward: Array) -> None:
        self.obs = obs
        self.next_obs = next_obs
        self.action = action
        self.reward = reward
        self.policy = Net(256, 17, 256, 12, True)
        self.critics = [Net(256, 23, 256, 1, True) for _ in range(2)]
        self.policy_flat = Flat(self.policy)
        self.critic_flat = Flat(*self.critics)
        self.target_flat = Flat(*self.critics)
        self.noise = numbers(256, 6)
        self.policy_output_gradient = np.zeros((256, 12), np.float32)
        self.action_gradient = np.zeros((256, 6), np.float32)
        self.value_gradient = np.zeros((256, 1), np.float32)

    def __call__(self) -> None:
        self.update_critics()
        self.update_policy()
        targets = self.target_flat.all[0]
        targets += np.float32(0.005) * (self.critic_flat.all[0] - targets)

    def update_critics(self) -> None:
        action, log_prob, _ = self.draw(self.next_obs)
        inputs = np.concatenate([self.next_obs, action], 1)
        next_value = np.min(self.values(self.target_flat, inputs), 0)
        target = self.reward + 0.99 * (next_value - 0.1 * log_prob)
        inputs = np.concatenate([self.obs, self.action], 1)
        for net, (weights, gradient) in self.pairs(self.critic_flat):
            net.forward(weights, inputs)
            net.regress(target, self.value_gradient)
            net.backward(weights, gradient, inputs, self.value_gradient)
        self.critic_flat.step(np.inf, 3e-4)

    def update_policy(self) -> None:
        action, _, deviation = self.draw(self.obs)
        by_action = self.gradient_of_lowest_value(action)
        by_mean = (by_action + np.float32(0.2 / 256) * action) * (1 - action**2)
        by_output = self.policy_output_gradient
        by_output[:, :6] = by_mean
        by_output[:, 6:] = by_mean * deviation * self.noise - np.float32(0.1 / 256)
        weights, gradient = self.policy_flat.parts[0]
        self.policy.backward(weights, gradient, self.obs, by_output)
        self.policy_flat.step(np.inf, 3e-4)

    def gradient_of_lowest_value(self, action: Array) -> Array:
        """Return the gradient [256, 6] of minus the mean of the lower value in the action."""
        inputs = np.concatenate([self.obs, action], 1)
        values = self.values(self.critic_flat, inputs)
        total = np.zeros((256, 6), np.float32)
        for number, (net, (weights, _)) in enumerate(self.pairs(self.critic_flat)):
            lower = values[number] < values[1 - number]
            self.value_gradient[:, 0] = lower * np.float32(-1 / 256)
            net.backward(weights, None, inputs, self.value_gradient, self.action_gradient)
            total += self.action_gradient
        return total

    def draw(self, obs: Array) -> tuple[Array, Array, Array]:
        """Return actions [256, 6], their log-probabilities [256] and standard deviations [256, 6]."""
        outputs = self.policy.forward(self.policy_flat.parts[0][0], obs)
        mean, log_std = np.hsplit(outputs, 2)
        deviation = np.exp(log_std.clip(-20, 2))
        action = np.tanh(mean + deviation * self.noise)
        log_prob = -0.5 * self.noise**2 - log_std - np.log(1 - action**2 + 1e-6)
        return action, log_prob.sum(1), deviation

    def values(self, flat: Flat, inputs: Array) -> list[Array]:
        """Return the values [256] of both critics with the given parameters."""
        return [net.forward(part[0], inputs)[:, 0] for net, part in self.pairs(flat)]

    def pairs(self, flat: Flat) -> Iterator[tuple[Net, list[Array]]]:
        """Return each critic with its parameters and their gradient."""
        return zip(self.critics, flat.parts, strict=True)


CASES = {"PPO, a minibatch": ppo, "DQN, an update": dqn, "SAC, an update": sac}
#: Functions that return the microseconds of an update by libraries, for networks large enough to be faster that way.
LIBRARIES = {"dqn": by_libraries.dqn, "sac": by_libraries.sac, "td3": by_libraries.td3}


@dataclass(frozen=True)
class StepFloor:
    """A pair of `peers.py`: its environment, updates per env step, and the floor of an update."""

    env: str
    updates: float
    make: Callable[[], Callable[[], object]] | None = None
    processes: int = 1
    threads: int = 1


STEP_FLOORS = {
    "a2c": StepFloor("CartPole-v1", 1 / 40, lambda: Rollout(40).floor),
    "a3c": StepFloor("CartPole-v1", 1 / 20, lambda: Rollout(20).floor, processes=2),
    "ppo": StepFloor("CartPole-v1", 20 / 256, lambda: Rollout(256).floor),
    "ppo-halfcheetah": StepFloor("HalfCheetah-v5", 10 / 64, lambda: Rollout(64, 17, 6).floor),
    "dqn": StepFloor("CartPole-v1", 128 / 256, lambda: dqn()["floor"]),
    "sac": StepFloor("HalfCheetah-v5", 1.0, threads=2),
    "td3": StepFloor("HalfCheetah-v5", 1.0, threads=2),
}
STEP_NOTE = """The floor of a whole env step is the time of the bare environment from Gymnasium's registry plus the
share of the updates in C or by libraries; acting, storing, targets and statistics cost nothing in it. The losses are
those for discrete actions, and PPO's loss also replaces A2C's and A3C's. The last columns use the table of the peers if
it was measured on the same processor: speed of rlplug / floor, floor / peer, rlplug / peer. Floors are minima of many
turns, the speeds of peers are medians on a machine with other users. The pairs of SAC and TD3 use two threads, and so
do the libraries in their floor. Without AVX-512 rlplug reached 0.23 to 0.51 of the speed of the floor, and the floor of
DQN was 6.1 times as fast as the peer instead of 4.5 times."""


def env_steps(id: str) -> Callable[[], object]:
    """Return a function that makes a hundred steps with random actions in a bare environment, with resets."""
    env = gymnasium.make(id).unwrapped
    spec = gymnasium.spec(id)
    env.reset(seed=1)
    env.action_space.seed(1)
    actions = [env.action_space.sample() for _ in range(100)]
    count = itertools.count(1)

    def run() -> None:
        for action in actions:
            if env.step(action)[2] or next(count) % (spec.max_episode_steps or 10**9) == 0:
                env.reset()

    return run


def libraries_floor(name: str, threads: int) -> float:
    """Return the microseconds of an update by libraries, or infinity for small networks: they are faster in C."""
    if name not in LIBRARIES:
        return np.inf
    torch.set_num_threads(threads)
    try:
        return LIBRARIES[name]()
    finally:
        torch.set_num_threads(1)


def step_table() -> str:
    """Return the table of whole env steps."""
    measured = json.loads(ROWS.read_text(encoding="utf-8"))["peers"]
    rows = [step_row(name, pair, measured.get(name)) for name, pair in STEP_FLOORS.items()]
    header = ["pair", "environment, µs", "updates, µs", "floor, env steps/s"]
    return table([*header, "rlplug / floor", "floor / peer", "rlplug / peer", "bar"], rows)


def step_row(name: str, pair: StepFloor, measured: dict[str, Any] | None) -> list[str]:
    """Return the row of a pair; `measured` is its row in the table of the peers."""
    calls = {"env": env_steps(pair.env)}
    if pair.make is not None:
        calls["update"] = pair.make()
    found = least(calls)
    update = min(found.get("update", np.inf), libraries_floor(name, pair.threads))
    micros = found["env"] / 100, update * pair.updates
    floor = pair.processes * 1e6 / sum(micros)
    cells = ["-"] * 4
    if measured is not None and measured["machine"] == machine():
        cells = cells_of_peer(measured["cells"], floor)
    return [name, *(f"{each:.1f}" for each in micros), f"{floor:,.0f}", *cells]


def cells_of_peer(cells: list[str], floor: float) -> list[str]:
    """Return the last columns: rlplug / floor, floor / peer, rlplug / peer, bar."""
    peer, ours = (float(cell.split()[0].replace(",", "")) for cell in cells[2:4])
    ratio = cells[4].split()[0].strip("*")
    bar = cells[5].removeprefix("≥ ").split()[0]
    return [f"{ours / floor:.2f}", f"{floor / peer:.1f}", ratio, bar]


def update_row(name: str, make: Callable[[], Calls]) -> list[str]:
    """Return the row of an update: the microseconds of each side, and the ratio to the lowest floor."""
    found = least(make())
    if make.__name__ in LIBRARIES:
        found["by libraries"] = LIBRARIES[make.__name__]()
    sides = ("rlplug", "by hand", "by libraries", "floor")
    cells = (f"{found[side]:,.0f}" if side in found else "-" for side in sides)
    lowest = min(found["floor"], found.get("by libraries", np.inf))
    return [name, *cells, f"{found['rlplug'] / lowest:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["ppo", "dqn", "sac"])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write needs all rows; leave out --only")
    set_torch(1)
    rows = [
        update_row(name, make)
        for name, make in CASES.items()
        if arguments.only in (None, make.__name__)
    ]
    header = [
        "update",
        "rlplug, µs",
        "by hand in numpy, µs",
        "by libraries, µs",
        "floor in C, µs",
        "rlplug / lowest",
    ]
    text = table(header, rows) + f"\n\n{NOTE}"
    text += "" if arguments.only else f"\n\n{step_table()}\n\n{STEP_NOTE}"
    print(text)
    if arguments.write:
        about = f"{machine()}; rlplug at {revision()}."
        write_section(
            "floor", f"## Compared with the floor\n\n`python bench/floor.py`\n\n{text}\n\n{about}"
        )


if __name__ == "__main__":
    main()
