"""Matrix products by the faster of the two libraries that torch contains for float32 on a CPU.

Torch uses MKL, which uses AVX-512 only on Intel processors; oneDNN uses every instruction that the processor has. On an
AMD EPYC of family 26 that is 210 GFLOPS per core instead of 106 (`bench/notes/measured-once.md`). The choice depends
only on the machine and the size, so a run that is resumed there has the same bits; a measurement at the start could
choose differently on a busy machine.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from rlplug_core.processor import WIDE, processor
from rlplug_core.types import Array

#: Multiplications above which oneDNN is faster: a call of it costs 10 µs, and the first one after many of NumPy's 40 µs
#: more. With 2**20, PPO with 64 units is 4 % slower, because its critic gets 264 rows per rollout.
ONEDNN_MINIMUM = 2**21
#: Up to this number of multiplications NumPy is not slower than torch on one thread without oneDNN: torch's first call
#: after many of NumPy's takes 40 µs more.
NUMPY_MAXIMUM = 2**24


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    """Compute `functional.linear` with a product by oneDNN: features [..., I], weight [O, I], bias [O].

    It can be differentiated any number of times. Small layers, and layers that are traced, watched by a
    `TorchFunctionMode` or not in float32 on a CPU get NotImplemented: torch computes them.
    """
    if not isinstance(features, Tensor) or features.numel() * weight.shape[0] <= ONEDNN_MINIMUM:
        return NotImplemented
    if not _is_supported(features, weight):
        return NotImplemented
    flat = features if features.ndim == 2 else features.flatten(0, -2)
    outputs = (_Product.apply if torch.is_grad_enabled() else _product)(flat, weight)
    outputs = outputs if bias is None else outputs.add_(bias)
    return outputs if features.ndim == 2 else outputs.view(*features.shape[:-1], -1)


def _is_supported(features: Tensor, weight: Tensor) -> bool:
    return (
        onednn_is_faster()
        and features.is_cpu
        and features.ndim > 1
        and features.dtype is weight.dtype is torch.float32
        and not has_torch_function((features, weight))
        and not torch._C._is_tracing()  # TorchScript cannot trace oneDNN's product
    )


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies faster than MKL on this machine.

    On AMD's processors with narrow units it has 0.65 to 1.0 of MKL's speed.
    """
    maker, family = processor()
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and maker == "AuthenticAMD"
        and family >= WIDE
    )


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return left [M, K] times right [N, K] transposed, without a gradient."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


class _Product(torch.autograd.Function):
    """`_product` with gradients, which are products themselves."""

    generate_vmap_rule = True

    @staticmethod
    def forward(left: Tensor, right: Tensor) -> Tensor:
        return _product(left, right)

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[Tensor, Tensor],
        output: Tensor,
    ) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(
        ctx: Any,
        gradient: Tensor,
    ) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        product: Any = _Product.apply if torch.is_grad_enabled() else _product
        return (
            product(gradient, right.t()) if ctx.needs_input_grad[0] else None,
            product(gradient.t(), left.t()) if ctx.needs_input_grad[1] else None,
        )


def matmul(left: Array, right: Array, into: Array | None = None) -> Array:
    """Return left [M, K] times right [K, N], by the faster library.

    NumPy computes small products, because a call of torch costs more. Torch computes large ones if it has more threads
    or if oneDNN is faster, and all if NumPy may use several threads: with these a small product takes up to ten times
    as long.

    Args:
        left, right: the factors.
        into: if given, a contiguous array of the result's shape and type, for the result.
    """
    size = len(left) * right.size
    medium = size <= NUMPY_MAXIMUM  # torch gains nothing on one thread without oneDNN
    if numpy_uses_one_thread() and (
        size <= ONEDNN_MINIMUM
        or (medium and torch.get_num_threads() == 1 and not onednn_is_faster())
    ):
        return left.dot(right, out=into)
    first = torch.from_numpy(left)
    second = torch.from_numpy(right)
    large = size > ONEDNN_MINIMUM and _is_supported(first, second)
    result: Array = (_product(first, second.t()) if large else first.mm(second)).numpy()
    if into is None:
        return result
    into[...] = result
    return into


@cache
def numpy_uses_one_thread() -> bool:
    """Return whether NumPy's products use one thread in this process, as in `rlplug` and its workers."""
    threads = os.environ.get("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS"))
    return threads == "1"
