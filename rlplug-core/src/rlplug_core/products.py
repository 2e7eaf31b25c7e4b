"""Matrix products by the faster of the two libraries that torch carries for float32 on a CPU.

Torch asks MKL, which leaves AVX-512 alone on processors that Intel did not make; oneDNN goes by what a processor can
do. On an AMD EPYC with AVX-512 that is 210 GFLOPS a core in place of 106 (`bench/products.py`). Which one is asked
depends on the machine and on the size alone, so a run that is resumed there has the same bits.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import has_torch_function

#: Multiplications above which oneDNN makes up for what calling it costs, some 10 us.
WORTH = 2**20


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What `functional.linear` gives: features [..., I] times weight [O, I] transposed, plus bias [O].

    It is differentiable any number of times, backwards. Code that is compiled, watched by a `TorchFunctionMode` or not
    in float32 on a CPU gets `functional.linear` itself.
    """
    if torch.compiler.is_compiling() or features.numel() * weight.shape[0] <= WORTH or not _ours(features, weight):
        return functional.linear(features, weight, bias)
    if features.ndim != 2:
        return linear(features.flatten(0, -2), weight, bias).view(*features.shape[:-1], -1)
    if torch.is_grad_enabled():
        result: Tensor = _Affine.apply(features, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return _product(features, weight, bias)


def _ours(features: Tensor, weight: Tensor) -> bool:
    return (
        faster()
        and features.is_cpu
        and features.ndim > 1
        and features.dtype is weight.dtype is torch.float32
        and not has_torch_function((features, weight))
    )


@cache
def faster() -> bool:
    """Whether oneDNN's products are faster on this machine than MKL's."""
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and maker() == "AuthenticAMD"
    )


def maker() -> str:
    """Who made the processor, as it says itself; an empty text where the system does not tell."""
    found, told = Path("/proc/cpuinfo"), platform.processor()  # the latter says it on Windows
    for line in found.read_text(encoding="utf-8").splitlines() if found.exists() else [f"vendor_id: {told}"]:
        name, _, value = line.partition(":")
        if name.strip() == "vendor_id":
            return value.split(",")[-1].strip()
    return ""


def _product(one: Tensor, other: Tensor, bias: Tensor | None = None) -> Tensor:
    """one [M, K] times other [N, K] transposed, plus bias [N]; without a gradient."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(one, other, bias, "none", [], "")
    return product


class _Product(torch.autograd.Function):
    """`_product` with gradients, which are products themselves."""

    generate_vmap_rule = True

    @staticmethod
    def forward(one: Tensor, other: Tensor) -> Tensor:
        return _product(one, other)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return _slopes(ctx, slope)


class _Affine(torch.autograd.Function):
    """The same with a bias."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(features, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        return *_slopes(ctx, slope), slope.sum(0) if ctx.needs_input_grad[2] else None


def _slopes(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a product's two factors."""
    one, other = ctx.saved_tensors
    product: Any = _Product.apply if torch.is_grad_enabled() else _product  # the former if gradients have gradients
    return (
        product(slope, other.t()) if ctx.needs_input_grad[0] else None,
        product(slope.t(), one.t()) if ctx.needs_input_grad[1] else None,
    )
