"""Losses of networks on a device have only scheduled options on the host, so that CUDA graphs can record them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlplug_core.algorithm import pure
from rlplug_core.context import Context
from rlplug_core.seeds import Seeds
from tests.algos.conftest import plan_of
from tests.algos.losses import critic_loss, draws, policy_loss, q_arguments, q_draws
from tests.algos.test_cudagraphs import env, losses
from tests.algos.test_dqn_loss import random_transitions
from tests.algos.test_policy_losses import random_samples
from tests.algos.test_sac_family import continuous


def call_losses(learner: Any, now: Any) -> None:
    """Call each loss of a learner on `meta` once."""

    def to_meta(batch: Any) -> Any:
        return batch.map(lambda tensor: tensor.to("meta"))

    learner.config = now
    kind = type(learner).__name__
    if kind == "PPO":
        learner.loss(to_meta(random_samples("Chain", 16)), now)
    elif kind == "DQN":
        batch = random_transitions(16)
        batch.extras = q_draws(learner, batch)
        learner.loss(*q_arguments(learner, to_meta(batch)))
    else:
        batch = continuous(16)
        batch.extras = draws(learner, batch)
        critic_loss(learner, to_meta(batch))
        with learner.fixed_critics:
            policy_loss(learner, to_meta(batch))


@pytest.fixture
def on_host() -> Iterator[Callable[..., list[set[str]]]]:
    """Return the inputs and numbers on the host in each graph of a learner's losses with networks elsewhere."""
    used: list[pure[Any, Any, Any]] = []

    def graphs(algorithm: str, moving: str, **options: Any) -> list[set[str]]:
        inputs: list[set[str]] = []

        def look(graph: torch.fx.GraphModule, _: Any) -> Any:
            values = {node.name: node.meta.get("example_value") for node in graph.graph.nodes}
            inputs.append({n for n, one in values.items() if isinstance(one, Tensor) and one.device.type != "meta"})
            return graph.forward

        plan = plan_of(algorithm, env(algorithm), {"inference_backend": "torch", "net.hidden": [8], **options})
        context = Context(Seeds(1), device=torch.device("meta"), compile=True)
        learner: Any = plan.learner(plan.make_env(1).spec, plan.config, context)
        used.extend(losses(learner))
        for loss in losses(learner):
            loss.compiled = torch.compile(loss.function, backend=look, fullgraph=True)
        for value in (0.1, 0.2, 0.3, 0.4):
            call_losses(learner, replace(plan.config, **{moving: value}))
        return inputs

    torch._dynamo.reset()
    yield graphs
    for loss in used:
        loss.compiled = None


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac", "td3"])
def test_losses_have_nothing_on_the_host(algorithm: str, on_host: Callable[..., list[set[str]]]) -> None:
    """Otherwise torch would not record them; a scheduled learning rate is not an input and causes no new trace."""
    switches = {"dqn": {"double": True, "dueling": True, "noisy": "factorized"}, "ppo": {"popart": True}}
    host_values = on_host(algorithm, "learning_rate", **switches.get(algorithm, {}))
    assert host_values == [set()] * (1 if algorithm in ("ppo", "dqn") else 2)


@pytest.mark.parametrize(
    ("algorithm", "moving"), [("ppo", "clip_range"), ("sac", "ent_coef"), ("td3", "target_policy_noise")]
)
def test_scheduled_option_is_a_number_on_the_host(
    algorithm: str, moving: str, on_host: Callable[..., list[set[str]]]
) -> None:
    """After the first value it is an input of one more graph for all values; torch does not record that graph."""
    host_values = on_host(algorithm, moving, **({"autotune": False} if algorithm == "sac" else {}))
    affected = 2 if algorithm == "sac" else 1
    assert [names for names in host_values if names] == [{f"l_now_{moving}"}] * affected
    assert len(host_values) == affected + (1 if algorithm == "ppo" else 2)
