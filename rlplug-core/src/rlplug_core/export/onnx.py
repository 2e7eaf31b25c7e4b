"""An exported policy for ONNX runtimes: observations by name in, the action and what is remembered out."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

import torch

from rlplug_core.errors import MissingPackage
from rlplug_core.export.flat import Flat
from rlplug_core.export.program import apart, quiet

#: What the exporter of torch needs.
NEEDED = ("onnx", "onnxscript")


def write_onnx(path: Path, flat: Flat) -> Path:
    """Write the program of a policy as ONNX, for any number of rows.

    Raises:
        MissingPackage: what writes it is not installed. UsageError: the policy cannot be exported.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise MissingPackage(
            f"{path.name} needs {', '.join(missing)}: python -m pip install 'rlplug-cli[onnx]'"
        )
    whole = apart(flat, flat.example())
    outputs = ["action", *(f"memory.{part}.next" for part in flat.memory)]
    logging.getLogger("torch.onnx").setLevel(
        logging.ERROR
    )  # it would report packages that nobody needs
    with quiet():
        program = torch.onnx.export(
            whole,
            dynamo=True,
            verbose=False,
            input_names=flat.names,
            output_names=outputs,
            external_data=False,
        )
        assert program is not None
        program.save(str(path))
    return path
