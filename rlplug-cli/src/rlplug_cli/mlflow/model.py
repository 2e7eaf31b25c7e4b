"""An exported policy as an MLflow model, for `mlflow models serve` and `mlflow.pyfunc.load_model`.

MLflow loads it through this module from the files of the export, without a pickle.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlplug_core import Policy, load
from rlplug_core.errors import UsageError
from rlplug_core.types import Array, Space

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

#: The directory of the model within that of an export.
NAME = "mlflow"


def save(export: Path) -> Path:
    """Write the policy of an export as an MLflow model below it; returns its directory.

    Raises:
        UsageError: observations or actions are Dict or Tuple, which MLflow's requests cannot express.
    """
    policy = load(export)
    temporary = export.with_name(f".{export.name}.{NAME}")
    with warnings.catch_warnings():
        # MLflow warns about its own type hints and about a missing example.
        warnings.simplefilter("ignore", UserWarning)
        from mlflow.pyfunc import save_model

        save_model(
            str(temporary),
            loader_module=__name__,
            data_path=str(export),
            signature=signature(policy),
            pip_requirements=["rlplug-cli"],
        )
    # The model contains a copy of the export, so it was not made inside of the export.
    return temporary.rename(export / NAME)


def signature(policy: Policy) -> ModelSignature:
    """Return the signature of a model: observations and actions `[B, ...]` in the units of the environment."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    def schema(space: Space) -> Schema:
        if space.shape is None or space.dtype is None:
            raise UsageError(f"MLflow's requests cannot express {space}; use policy.json or --onnx")
        return Schema([TensorSpec(np.dtype(space.dtype), (-1, *space.shape))])

    return ModelSignature(
        inputs=schema(policy.observation_space), outputs=schema(policy.action_space)
    )


class Served:
    """A policy for MLflow's requests; each request starts a new episode of a policy with memory."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def predict(
        self,
        model_input: Array,
        params: dict[str, object] | None = None,
    ) -> object:
        """Return the greedy actions for observations `[B, ...]`, an array or a table with a column for each number."""
        self.policy.reset()
        return self.policy(np.asarray(model_input, self.policy.observation_space.dtype))


def _load_pyfunc(path: str) -> Served:
    """Load the model in a directory; MLflow calls this function."""
    return Served(load(path))
