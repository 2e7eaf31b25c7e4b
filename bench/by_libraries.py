"""What libraries alone take of an update: its matrix products and torch's fused Adam, and nothing between them.

Networks of 256 units are faster so than in C by a compiler (`floor.c`), so this is their floor. Each product is asked
of numpy's library, of torch's and of oneDNN, and the fastest counts. No activation, loss, bias, gather or clip is in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from turns import least

#: Rows, inner and columns of one product.
Product: TypeAlias = tuple[int, int, int]


def forward(batch: int, *widths: int) -> list[Product]:
    """The products of a network's layers, from inputs to outputs."""
    return [(batch, inner, outer) for inner, outer in pairwise(widths)]


def backward(batch: int, *widths: int, weights: bool = True, inputs: bool = False) -> list[Product]:
    """Those of the slopes of the weights and of the layers' inputs; of the first layer's only with `inputs`."""
    pairs = list(pairwise(widths))
    of_weights = [(outer, batch, inner) for inner, outer in pairs] if weights else []
    return of_weights + [(batch, outer, inner) for inner, outer in pairs[0 if inputs else 1 :]]


def size(*widths: int) -> int:
    """How many parameters a network has."""
    return sum((inner + 1) * outer for inner, outer in pairwise(widths))


def dqn() -> float:
    """64 samples, two layers of 256; the target network only forward."""
    net = (4, 256, 256, 2)
    return total(forward(64, *net) * 2 + backward(64, *net), [size(*net)])


def sac() -> float:
    """256 samples; a policy, two critics and their targets of two layers of 256."""
    policy, critic = (17, 256, 256, 12), (23, 256, 256, 1)
    targets = forward(256, *policy) + forward(256, *critic) * 2
    of_critics = (forward(256, *critic) + backward(256, *critic)) * 2
    of_policy = forward(256, *policy) + backward(256, *policy)
    through_critics = (forward(256, *critic) + backward(256, *critic, weights=False, inputs=True)) * 2
    return total(targets + of_critics + of_policy + through_critics, [size(*policy), 2 * size(*critic)])


def total(products: list[Product], parameters: list[int]) -> float:
    """Microseconds of all products, each by the fastest library, and of Adam's steps."""
    return sum(fastest(*one) for one in products) + sum(adam(count) for count in parameters)


def fastest(rows: int, inner: int, columns: int) -> float:
    """The least microseconds of one product."""
    one, other = (
        np.random.default_rng(1).standard_normal(shape, dtype=np.float32) for shape in ((rows, inner), (inner, columns))
    )
    into, tensors = np.empty((rows, columns), np.float32), (torch.from_numpy(one), torch.from_numpy(other.T.copy()))
    turned, place = tensors[1].t(), torch.from_numpy(into)
    calls = {
        "numpy": lambda: np.dot(one, other, out=into),
        "torch": lambda: torch.mm(tensors[0], turned, out=place),
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(tensors[0], tensors[1], None, "none", [], ""),
    }
    return min(least(calls).values())


def adam(count: int) -> float:
    """The least microseconds of one step of torch's fused Adam over `count` parameters."""
    tensors, step = [torch.full((count,), 0.01) for _ in range(4)], torch.zeros(())

    def step_once() -> None:
        torch._fused_adam_(
            *([one] for one in tensors), [], [step], amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-6, weight_decay=0.0,
            eps=1e-5, maximize=False,
        )  # fmt: skip

    return least({"adam": step_once})["adam"]
