"""An exported policy as TorchScript, for programs that load it with LibTorch; torch calls it deprecated."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from rlplug_core.errors import UsageError
from rlplug_core.export.flat import Flat
from rlplug_core.export.program import ignore_torch_warnings, inference_copy


def write_torchscript(path: Path, flat: Flat) -> Path:
    """Write the program of a policy as TorchScript, with lists of tensors as input (order: `policy.json`) and output.

    Raises:
        UsageError: this torch no longer has TorchScript.
    """
    if find_spec("torch.jit") is None:
        raise UsageError(
            f"torch {torch.__version__} no longer writes TorchScript; leave out --torchscript"
        )
    with ignore_torch_warnings(), torch.no_grad():
        traced = torch.jit.trace(inference_copy(flat), (flat.example(),), check_trace=False)
        torch.jit.save(traced, str(path))
    return path
