"""Measure the matrix products of an update and torch's fused Adam, and nothing else.

Networks of 256 units are faster this way than in compiled C (`floor.c`), so this is their floor. Each product uses the
fastest of NumPy's library, torch's library and oneDNN. The products have the order and the memory layout of an update,
which takes 2 % more time than each product by itself. Activations, losses, biases, gathers and clipping are not
included."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from turns import least

from rlplug_core.types import Array

Call = Callable[[], object]


class Net:
    """The matrix products of one network: they read weights [outer, inner] and write outputs and gradients."""

    def __init__(self, batch: int, *widths: int) -> None:
        shapes = [(outer, inner) for inner, outer in pairwise(widths)]
        self.size = sum((inner + 1) * outer for outer, inner in shapes)
        self.flat, self.gradient = (random_array(self.size) * np.float32(0.01) for _ in range(2))
        ends = np.cumsum([outer * inner for outer, inner in shapes])[:-1]
        self.weights, self.weight_gradients = (
            [
                part[: outer * inner].reshape(outer, inner)
                for part, (outer, inner) in zip(parts, shapes, strict=True)
            ]
            for parts in (np.split(self.flat, ends), np.split(self.gradient, ends))
        )
        self.outputs, self.gradients = (
            [random_array(batch, width) for width in widths] for _ in range(2)
        )

    def forward(self) -> list[Call]:
        """Return the products from inputs to outputs."""
        layers = zip(pairwise(self.outputs), self.weights, strict=True)
        return [fastest(inner, weight.T, outer) for (inner, outer), weight in layers]

    def backward(self, weights: bool = True, inputs: bool = False) -> list[Call]:
        """Return the products for gradients, last layer to first; those of the first inputs only with `inputs`."""
        calls = []
        for layer in reversed(range(len(self.weights))):
            above = self.gradients[layer + 1]
            if weights:
                calls.append(fastest(above.T, self.outputs[layer], self.weight_gradients[layer]))
            if layer or inputs:
                calls.append(fastest(above, self.weights[layer], self.gradients[layer]))
        return calls


def random_array(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def dqn() -> float:
    """64 samples, two layers of 256; the target network only runs forward."""
    online, target = (Net(64, 4, 256, 256, 2) for _ in range(2))
    return time_of([*target.forward(), *online.forward(), *online.backward(), adam(online)])


def sac() -> float:
    """256 samples; a policy, two critics and their targets of two layers of 256."""
    policy = Net(256, 17, 256, 256, 12)
    critics = [Net(256, 23, 256, 256, 1) for _ in range(4)]
    calls = policy.forward()
    for target in critics[2:]:
        calls += target.forward()
    for critic in critics[:2]:
        calls += [*critic.forward(), *critic.backward(), adam(critic)]
    calls += policy.forward()
    for critic in critics[:2]:
        calls += [*critic.forward(), *critic.backward(weights=False, inputs=True)]
    return time_of([*calls, *policy.backward(), adam(policy)])


def td3() -> float:
    """256 samples; a policy, two critics and the targets of all three; the policy learns every second update."""
    policy, target_policy = (Net(256, 17, 256, 256, 6) for _ in range(2))
    critics = [Net(256, 23, 256, 256, 1) for _ in range(4)]
    calls = target_policy.forward()
    for target in critics[2:]:
        calls += target.forward()
    for critic in critics[:2]:
        calls += [*critic.forward(), *critic.backward(), adam(critic)]
    delayed = [
        *policy.forward(),
        *critics[0].forward(),
        *critics[0].backward(weights=False, inputs=True),
    ]
    return time_of(calls) + time_of([*delayed, *policy.backward(), adam(policy)]) / 2


def time_of(calls: list[Call]) -> float:
    """Return the minimum microseconds of all calls together, in their order."""

    def run_all() -> None:
        for call in calls:
            call()

    return least({"all": run_all})["all"]


def fastest(left: Array, right: Array, out: Array) -> Call:
    """Return the fastest function that multiplies `left` by `right`."""
    tensors = (torch.from_numpy(left), torch.from_numpy(right))
    out_tensor = torch.from_numpy(out)
    transposed = tensors[1].t()
    calls: dict[str, Call] = {
        "numpy": lambda: np.dot(left, right, out=out),
        "torch": lambda: torch.mm(*tensors, out=out_tensor),
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(
            tensors[0], transposed, None, "none", [], ""
        ),
    }
    found = least(calls)
    return calls[min(found, key=lambda name: found[name])]


def adam(net: Net) -> Call:
    """Return one step of torch's fused Adam over the parameters of a network."""
    flat = torch.from_numpy(net.flat)
    gradient = torch.from_numpy(net.gradient)
    mean = torch.zeros_like(flat)
    square = torch.ones_like(flat)
    count = torch.ones(())
    return lambda: torch._fused_adam_(
        [flat],
        [gradient],
        [mean],
        [square],
        [],
        [count],
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=1e-6,
        weight_decay=0.0,
        eps=1e-5,
        maximize=False,
    )
