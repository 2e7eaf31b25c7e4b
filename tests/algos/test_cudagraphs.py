"""`--cudagraphs`: what leaves a replayed loss stays, and updates are those without; on a GPU, where one is here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.cudagraph_trees import get_manager
from torch.utils._pytree import tree_map_only

from rlplug_core.algorithm import Algorithm, pure
from rlplug_core.learning.cudagraphs import OPTIONS, replayed
from rlplug_core.types import Result
from tests.algos.conftest import make_runner, plan_of

UPDATES = 20
REPLAY = {"learning_starts": 20, "batch_size": 8, "total_timesteps": 1000}
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 2, "total_timesteps": 32 * UPDATES},
    "dqn": {**REPLAY, "double": True, "dueling": True, "noisy": "factorized", "priority.alpha": 0.6},
    "sac": REPLAY,
    "td3": REPLAY,
}
CHOSEN: list[tuple[str, dict[str, Any], bool]] = [
    *((algorithm, {}, True) for algorithm in CASES), ("dqn", {"buffer_storage": "cuda"}, True),
    ("ppo", {"clip_range": "linear(0.3,0.1)"}, False),
]  # fmt: skip
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def env(algorithm: str) -> str:
    return "Continuous" if algorithm in ("sac", "td3") else "Chain"


def losses(learner: Any) -> list[pure[Any, Any, Any]]:
    return [part for part in vars(type(learner)).values() if isinstance(part, pure)]


class Same(torch.autograd.Function):
    """Puts a tensor into memory that was there before, with its gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, place: Tensor) -> Tensor:
        return place.copy_(value).detach()

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0], None


class Graph:
    """Stands where `torch.compile` would: it returns the same memory at every call, as a CUDA graph does."""

    def __init__(self, function: Callable[..., Any], options: Any = None) -> None:
        self.function, self.options, self.memory = function, options, list[Tensor]()

    def __call__(self, *given: Any) -> Any:
        places = iter([*self.memory])

        def placed(value: Tensor) -> Tensor:
            if (place := next(places, None)) is None:
                self.memory.append(place := torch.empty_like(value).detach())
            return Same.apply(value, place)  # type: ignore[no-any-return, no-untyped-call]

        return tree_map_only(Tensor, placed, self.function(*given))


def in_step(algorithm: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Twenty updates of a learner, and of another with graphs, on the same batches; compared after the last one."""
    runner = make_runner(algorithm, env(algorithm), {"net.hidden": [8], **CASES[algorithm], **options})
    eager, results = runner.learner, list[tuple[Result, Result, dict[str, float]]]()
    context = replace(eager.context, compile=True, cudagraphs=True)
    graphs = type(eager)(runner.actor.env.spec, eager.config, context)
    for loss in losses(eager):
        monkeypatch.setattr(loss, "replayed", None)
    while runner.clock.updates < UPDATES:
        for lane, step in runner.actor.step():
            lane.buffer.add(step)
            for batch in lane.buffer.batches(runner.clock):
                pair = eager.update(batch, runner.clock), graphs.update(batch, runner.clock)
                lane.buffer.feedback(batch, pair[0])
                runner.clock.updates += 1
                results.append((*pair, {name: float(value) for name, value in pair[1].metrics.items()}))
    for expected, found, then in results:
        assert {name: float(value) for name, value in found.metrics.items()} == then
        torch.testing.assert_close(found.metrics, expected.metrics, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found.priority, expected.priority, rtol=1e-3, atol=1e-4)
    for name, one in eager.named_parameters():
        torch.testing.assert_close(dict(graphs.named_parameters())[name], one, rtol=1e-3, atol=1e-4)
    return eager, graphs


@pytest.mark.parametrize("algorithm", CASES)
def test_what_a_loss_returned_outlives_the_next_call(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", Graph)
    monkeypatch.setattr(Algorithm, "_no_rules", lambda learner, batch: "the other one is compiled")
    eager, graphs = in_step(algorithm, {}, monkeypatch)
    for name, one in eager.named_parameters():
        assert torch.equal(dict(graphs.named_parameters())[name], one)


def test_copies_are_of_every_tensor_and_keep_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", Graph)
    weight = torch.ones(2, requires_grad=True)
    call = replayed(lambda x: (weight @ x, {"x": [x, (2 * x,)], "count": 3}))
    (first, more), (second, _) = call(torch.ones(2)), call(torch.zeros(2))
    (first + second).backward()
    assert (first.item(), second.item(), more["count"]) == (2, 0, 3)
    assert [more["x"][0].tolist(), more["x"][1][0].tolist(), weight.grad.tolist()] == [[1, 1], [2, 2], [1, 1]]


def test_graphs_are_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any device: where they make sense is for `Plan.check` to say."""
    made: list[Graph] = []
    monkeypatch.setattr(torch, "compile", lambda *given, **options: made.append(Graph(*given, **options)) or made[-1])
    plan = plan_of("ppo", "Chain", {})
    spec, loss = plan.make_env(1).spec, vars(plan.learner)["loss"]
    monkeypatch.setattr(loss, "compiled", None)
    monkeypatch.setattr(loss, "replayed", None)
    for chosen in ({}, {"cudagraphs": True}, {"compile": True}, {"compile": True, "cudagraphs": True}):
        learner: Any = replace(plan, options=replace(plan.options, **chosen)).make_learner(spec)
        for _ in range(2):
            assert (learner.loss.__func__ is loss.function) == ("compile" not in chosen)
    assert [(one.function, one.options) for one in made] == [(loss.function, None), (loss.function, OPTIONS)]


@CUDA
@pytest.mark.filterwarnings("default")  # inductor warns of what it may not find on this machine
@pytest.mark.parametrize(("algorithm", "options", "graphs"), CHOSEN)
def test_updates_with_graphs_are_those_without(
    algorithm: str, options: dict[str, Any], graphs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded a few times for each loss, and not at every update."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = get_manager(0).new_graph_id().id
    learner, _ = in_step(algorithm, {"device": "cuda", **options}, monkeypatch)
    recorded = get_manager(0).new_graph_id().id - before - 1
    assert (torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == 0) == graphs
    assert not graphs or 2 * len(losses(learner)) <= recorded <= 4 * len(losses(learner))
