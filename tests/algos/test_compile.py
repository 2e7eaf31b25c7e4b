"""`--compile`: a loss compiled by the real inductor gives the same update as eager."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch

from rlplug_core.algorithm import pure
from rlplug_core.fast.losses import FastLosses
from tests.algos.conftest import make_runner
from tests.algos.losses import q_arguments, q_draws
from tests.algos.test_dqn_loss import random_transitions

HEADERS = Path(sysconfig.get_path("include")) / "Python.h"

OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 4, "n_steps": 32, "batch_size": 32, "n_epochs": 2, "total_timesteps": 256},
    "acer": {"num_envs": 2, "n_steps": 16, "learning_starts": 0, "total_timesteps": 128},
    "dqn": {
        "num_envs": 2,
        "learning_starts": 64,
        "batch_size": 32,
        "total_timesteps": 200,
        "double": True,
        "dueling": True,
    },
}

#: At least twelve updates, to notice a new graph per update.
SCHEDULED: dict[str, dict[str, Any]] = {
    "ppo": {
        "num_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "total_timesteps": 128 * 12,
        "clip_range": "cosine(0.3,0.01)", "ent_coef": "linear(0.1,0)", "vf_coef": "piecewise(0:0.5,0.5:1,1:0.1)",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "algorithm", ["c51", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qrdqn", "iqn"))]
)
def test_loss_with_all_switches_is_one_graph(make_learner: Callable[..., Any], algorithm: str) -> None:
    """Traced without a break, it equals eager, including noise, for several batches."""
    learner = make_learner(
        algorithm,
        "Chain",
        double=True,
        dueling=True,
        noisy="factorized",
        **{"net.hidden": [8, 8]},
    )
    torch._dynamo.reset()
    traced = torch.compile(vars(type(learner))["loss"].function, backend="eager", fullgraph=True)
    for _ in range(2):
        batch = random_transitions(16)
        batch.extras = q_draws(learner, batch)
        given = q_arguments(learner, batch)
        loss, _, error = traced(learner, *given)
        expected, _, expected_error = learner.loss(*given)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(error, expected_error)


@pytest.mark.skipif(not HEADERS.exists(), reason="torch.compile needs a compiler and Python's headers")
@pytest.mark.filterwarnings("default")  # inductor warns of missing tools
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OPTIONS)
def test_compiled_run_equals_eager_run(
    train_runner: Callable[..., Any], algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dozens of updates with one graph, compiled once into an empty cache."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    eager = train_runner(algorithm, "Chain", **OPTIONS[algorithm]).snapshot()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = train_runner(algorithm, "Chain", **OPTIONS[algorithm], compile=True).snapshot()
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    torch.testing.assert_close(compiled.optimizers[0].flat, eager.optimizers[0].flat, rtol=1e-3, atol=1e-5)
    assert compiled.state_dict().keys() == eager.state_dict().keys()


@pytest.mark.skipif(not HEADERS.exists(), reason="torch.compile needs a compiler and Python's headers")
@pytest.mark.filterwarnings("default")
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SCHEDULED)
def test_compiled_loss_follows_schedules(
    train_runner: Callable[..., Any], algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor may turn a number into a constant, and would then compile again at every update."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    options = {**SCHEDULED[algorithm], "net.hidden": [8]}
    eager = train_runner(algorithm, "Chain", **options).snapshot()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = train_runner(algorithm, "Chain", **options, compile=True).snapshot()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    torch.testing.assert_close(compiled.optimizers[0].flat, eager.optimizers[0].flat, rtol=1e-3, atol=1e-5)


def test_traced_loss_follows_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is traced twice, for the first numbers and for changing numbers, not at every update."""
    options: dict[str, Any] = {
        "num_envs": 4,
        "n_steps": 8,
        "batch_size": 32,
        "n_epochs": 2,
        "total_timesteps": 512,
        "learning_rate": 1e-2,
    }
    moving = {
        "clip_range": "cosine(0.3,0.01)",
        "ent_coef": "linear(0.5,0)",
        "vf_coef": "piecewise(0:0.5,0.5:1,1:0.1)",
    }

    monkeypatch.setattr(FastLosses, "_reason_for_autograd", lambda *_: "the loss is traced here")

    def weights(traced: bool, **more: Any) -> torch.Tensor:
        runner = make_runner("ppo", "Chain", {**options, **more})
        if traced:
            runner.learner.loss = torch.compile(
                MethodType(type(runner.learner).loss, runner.learner), backend="eager", fullgraph=True
            )
        runner.run(lambda: None)
        flat: torch.Tensor = runner.learner.optimizers[0].flat
        return flat

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    assert torch.equal(weights(True, **moving), weights(False, **moving))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert not torch.equal(weights(False, **moving), weights(False, clip_range=0.3, ent_coef=0.5, vf_coef=0.5))


#: At least ten updates each.
TRACED: dict[str, dict[str, Any]] = {
    **{name: {"learning_starts": 20, "batch_size": 8, "total_timesteps": 40} for name in ("ddpg", "td3", "sac", "tqc")},
    "crossq": {
        "learning_starts": 20, "batch_size": 8, "total_timesteps": 40, "critic_net.hidden": [8], "policy_delay": 1,
    },
    "sac-discrete": {"learning_starts": 20, "batch_size": 8, "total_timesteps": 40},
    "trpo": {"n_steps": 8, "batch_size": 8, "n_critic_updates": 1, "total_timesteps": 160, "popart": True},
    "acktr": {"n_steps": 8, "total_timesteps": 160},
    "vpg": {"n_steps": 8, "total_timesteps": 320},
    "ppo-recurrent": {
        "num_envs": 4, "n_steps": 4, "batch_size": 8, "n_epochs": 2, "recurrent_hidden_size": 8, "total_timesteps": 256,
    },
    "r2d2": {
        "learning_starts": 20, "batch_size": 2, "sequence_length": 4, "burn_in": 2, "n_step": 2, "train_freq": 4,
        "recurrent_hidden_size": 8, "total_timesteps": 80,
    },
    "acer-continuous": {"n_steps": 8, "learning_starts": 0, "replay_ratio": 1.0, "total_timesteps": 160},
}  # fmt: skip
#: One of each family; the others are `slow`, because the compiler is.
PLAIN = ("sac", "trpo", "ppo-recurrent", "r2d2")
OF_BOXES = ("ddpg", "td3", "sac", "tqc", "crossq", "acer-continuous")


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name in PLAIN else pytest.mark.slow) for name in TRACED]
)
def test_compiled_losses_are_single_graphs(algorithm: str) -> None:
    """Everything that `--compile` compiles, traced without a break, equals eager, without a graph per update."""
    options = {"num_envs": 2, "net.hidden": [8], **TRACED[algorithm]}

    def run(traced: bool) -> Any:
        runner = make_runner(algorithm, "Continuous" if algorithm in OF_BOXES else "Chain", options)
        learner = runner.learner
        losses = [part for part in vars(type(learner)).values() if isinstance(part, pure) and part.minimized]
        for loss in losses:
            loss.compiled = torch.compile(loss.function, backend="eager", fullgraph=True) if traced else None
        learner.context = replace(learner.context, compile=traced)
        learner._takes_arrays = not traced
        runner.run(lambda: None)
        for loss in losses:
            loss.compiled = None
        assert runner.clock.updates >= 10
        return learner, len(losses)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    learner, losses = run(True)
    eager, _ = run(False)
    assert losses <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2 * losses
    for name, one in eager.named_parameters():
        torch.testing.assert_close(dict(learner.named_parameters())[name], one)
