"""An exported policy in other formats: ONNX, and TorchScript, which torch calls deprecated."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

import torch

from rlplug_core.errors import MissingPackage, UsageError
from rlplug_core.export.flat import Flat
from rlplug_core.export.program import export_program, ignore_torch_warnings, inference_copy

#: Packages that torch's exporter needs.
NEEDED = ("onnx", "onnxscript")


def write_onnx(path: Path, flat: Flat) -> Path:
    """Write the program of a policy as ONNX, for any number of rows.

    Its inputs have the names `Flat.names`, its outputs `action` and, with a memory, `memory.PART.next`.

    Raises:
        MissingPackage: a package for ONNX is not installed.
        UsageError: the policy cannot be exported.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"{path.name} needs {', '.join(missing)}: python -m pip install 'rlplug-cli[onnx]'"
        )
    exported = export_program(flat, flat.example())
    outputs = ["action", *(f"memory.{part}.next" for part in flat.memory)]
    # Without this torch reports that optional packages are missing.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with ignore_torch_warnings():
        program = torch.onnx.export(
            exported,
            dynamo=True,
            verbose=False,
            input_names=flat.names,
            output_names=outputs,
            external_data=False,
        )
        assert program is not None
        program.save(str(path))
    return path


def write_torchscript(path: Path, flat: Flat) -> Path:
    """Write the program of a policy as TorchScript, for programs that load it with LibTorch.

    Input and output are lists of tensors; `policy.json` has the order of the inputs.

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
