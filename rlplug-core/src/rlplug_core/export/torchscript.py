"""An exported policy as TorchScript, for programs that load it with LibTorch; torch calls it deprecated."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from rlplug_core.errors import UsageError
from rlplug_core.export.flat import Flat
from rlplug_core.export.program import alone, quiet


def write_torchscript(path: Path, flat: Flat) -> Path:
    """Write the program of a policy as TorchScript: a list of tensors in, named by the JSON's program, a list out.

    Raises:
        UsageError: this torch has no TorchScript any more.
    """
    if find_spec("torch.jit") is None:
        raise UsageError(
            f"torch {torch.__version__} writes no TorchScript any more; leave out --torchscript"
        )
    with quiet(), torch.no_grad():
        traced = torch.jit.trace(alone(flat), (flat.example(),), check_trace=False)
        torch.jit.save(traced, str(path))
    return path
