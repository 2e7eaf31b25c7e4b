"""A request has each option by dotted name with its origin, and its environments."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from rlplug_core.errors import UsageError
from rlplug_core.plugins.request import RunRequest


def make_net(space: object) -> object:
    return space


def test_options_are_flat_and_separate_from_environment_arguments() -> None:
    options = {"seed": 3, "net": {"hidden": [8]}, "env": {"size": {"x": 1}}, "eval_env.size": 2}
    request = RunRequest.make("ppo", "CartPole-v1", options)
    assert request.values == {"seed": 3, "net.hidden": [8], "env.size.x": 1, "eval_env.size": 2}
    assert set(request.origins.items()) == {(name, "option") for name in request.values}
    assert request.options == {"seed": 3, "net.hidden": [8]}
    assert request.source.arguments == {"size": {"x": 1}}
    assert request.eval_source.arguments == {"size": 2}, "over those of training"
    with pytest.raises(FrozenInstanceError):
        request.algorithm = "a2c"  # type: ignore[misc]


def test_evaluation_uses_training_environment_by_default() -> None:
    request = RunRequest.make("ppo", "CartPole-v1", {})
    assert request.eval_source is request.source
    assert RunRequest.make("ppo", "CartPole-v1", {"eval_env": "Other-v0"}).eval_source.name == "Other-v0"
    unnamed: Any = {"eval_env": lambda: gymnasium.make("CartPole-v1")}
    with pytest.raises(UsageError, match="eval_env is a lambda"):
        _ = RunRequest.make("ppo", "CartPole-v1", unnamed).eval_source


def test_records_function_by_its_import_path() -> None:
    request = RunRequest.make("ppo", "CartPole-v1", {"net": {"factory": make_net}})
    assert request.values["net.factory"].endswith(f"{Path(__file__).stem}:make_net")
    with pytest.raises(UsageError, match=r"net\.factory: lambda is a lambda"):
        RunRequest.make("ppo", "CartPole-v1", {"net.factory": lambda space: space})


@pytest.mark.parametrize(
    ("options", "origins", "number"),
    [({}, None, 3), ({"num_envs": 2}, None, 2), ({"num_envs": 2}, {"num_envs": "preset"}, 3)],
)
def test_vector_env_keeps_its_number_of_environments_by_default(
    options: dict[str, Any], origins: dict[str, str] | None, number: int
) -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    assert RunRequest.make("ppo", env, options, origins).values["num_envs"] == number
