"""Matrix products of linear layers by oneDNN beside torch's own, forward and backward, on one thread.

python bench/products.py [--repeats 15] [--write]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from results import machine, revision, table, write_section
from torch import Tensor
from torch.nn import functional

from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.nets import products

#: SerialEnvs, inputs and outputs of layers that algorithms have: of PPO, DQN, and SAC with its first layer.
SHAPES = [
    (64, 64, 64),
    (256, 64, 64),
    (2048, 64, 64),
    (64, 256, 256),
    (256, 23, 256),
    (256, 256, 256),
]


def best(action: Callable[[], object], repeats: int) -> float:
    """Microseconds, of the least disturbed of so many turns."""
    turns = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(50):
            action()
        turns.append((time.perf_counter() - began) / 50)
    return min(turns) * 1e6


def timed(
    linear: Callable[..., Tensor], shape: tuple[int, int, int], repeats: int
) -> tuple[float, float]:
    """Forward alone, and forward and backward to all three."""
    rows, inputs, outputs = shape
    parts = [
        torch.randn(size, requires_grad=True)
        for size in ((rows, inputs), (outputs, inputs), (outputs,))
    ]
    slope = torch.randn(rows, outputs)
    with torch.no_grad():
        forward = best(lambda: linear(*parts), repeats)
    return forward, best(lambda: torch.autograd.grad(linear(*parts), parts, slope), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--write", action="store_true", help="write the table into bench/RESULTS.md too"
    )
    given = parser.parse_args()
    set_torch(1)
    rows = []
    chosen = products.faster()
    worth = products.WORTH
    products.faster = lambda: True  # type: ignore[assignment]
    products.WORTH = 0
    for shape in SHAPES:
        own, ours = (
            timed(linear, shape, given.repeats) for linear in (functional.linear, products.linear)
        )
        taken = chosen and shape[0] * shape[1] * shape[2] > worth
        numbers = [f"{value:.0f}" for pair in zip(own, ours, strict=True) for value in pair]
        rows.append(
            [
                "{} x {} to {}".format(*shape),
                *numbers,
                f"**{own[1] / ours[1]:.2f}**",
                "yes" if taken else "no",
            ]
        )
    header = [
        "rows, inputs, outputs",
        "torch, us",
        "oneDNN",
        "torch, with backward",
        "oneDNN",
        "ratio",
        "asked here",
    ]
    text = f"""## Linear layers by oneDNN

`python bench/products.py`

{table(header, rows)}

Microseconds on one thread, the best of {given.repeats} turns; torch asks MKL. {machine()}; rlplug at {revision()}."""
    print(text)
    if given.write:
        write_section("products", text)


if __name__ == "__main__":
    main()
