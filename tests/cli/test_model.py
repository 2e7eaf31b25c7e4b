"""An exported policy as an MLflow model gives the same actions as the policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from rlplug_cli.mlflow.model import signature
from rlplug_core import Policy, load
from rlplug_core.errors import UsageError
from tests.cli.conftest import Result

FEW = ("--total-timesteps", "300", "--eval-episodes", "1", "--final-eval-episodes", "1", "--name", "one")


@pytest.fixture
def export(place: Path, rlplug: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export with its MLflow model."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    assert rlplug("run", "a2c", "CartPole-v1", *FEW).code == 0
    result = rlplug("export", "one", "--out", "policy", "--mlflow")
    assert result.code == 0, result.err
    assert "mlflow models serve --model-uri policy/mlflow" in result.out
    return place / "policy"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_model_gives_the_actions_of_the_policy(export: Path) -> None:
    from mlflow.pyfunc import load_model
    from mlflow.pyfunc.scoring_server import infer_and_parse_data

    model = load_model(str(export / "mlflow"))
    policy = load(export)
    observations = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    answer = model.predict(observations)
    assert answer.dtype == np.int64
    assert answer.tolist() == policy(observations).tolist()
    assert set(answer) == {0, 1}
    body = {"inputs": observations[:5].tolist()}  # the body of a request to /invocations
    request = infer_and_parse_data(body, schema=model.metadata.get_input_schema())
    assert model.predict(request).tolist() == answer[:5].tolist()


def test_model_has_no_pickle_files(export: Path) -> None:
    kinds = {path.suffix for path in (export / "mlflow").rglob("*") if path.is_file()}
    assert kinds <= {"", ".json", ".safetensors", ".md", ".yaml", ".txt"}


def test_failed_model_leaves_no_files(
    export: Path, rlplug: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise UsageError("no form for this")

    before = {path.name for path in export.parent.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("rlplug_cli.mlflow.model.signature", refuse)
        assert rlplug("export", "one", "--out", "other", "--mlflow").code == 2
    assert {path.name for path in export.parent.iterdir()} == before


def test_spaces_with_parts_are_refused() -> None:
    class Parts(Policy):
        def __init__(self) -> None:
            self.observation_space = spaces.Dict({"a": spaces.Discrete(2)})
            self.action_space = spaces.Discrete(2)

    with pytest.raises(UsageError, match="requests cannot express"):
        signature(Parts())
