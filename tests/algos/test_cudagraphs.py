"""`--cudagraphs`: replayed gradient steps equal computed ones; on a GPU if there is one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import room
from rlplug_core.algorithm import pure
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config
from rlplug_core.errors import NonFinite, PluginError
from rlplug_core.fast.cuda import graph_forward as torch_forward
from rlplug_core.fast.cuda import graphs as cudagraphs
from rlplug_core.fast.cuda.cuda_graph import WARM
from rlplug_core.fast.cuda.device_step import CHECK_EVERY
from rlplug_core.fast.cuda.graph_forward import GraphForward, TorchForward
from rlplug_core.fast.cuda.graphs import VALUES, Graphs
from rlplug_core.fast.cuda.pytree import Leaves, Packed, map_tree
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import SGD, Adam, AdamW, RMSProp, Torch, UpdateRule
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.sync import step_and_train
from rlplug_core.types import Result
from tests.algos.conftest import make_runner
from tests.tables import for_each

T = TypeVar("T")
UPDATES = 20
REPLAY = {"learning_starts": 20, "batch_size": 8, "total_timesteps": 1000}
ROLLOUT = {"num_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 2, "total_timesteps": 32 * UPDATES}
ONE = {"num_envs": 4, "n_steps": 8, "total_timesteps": 4000, "runner": "sync"}
CASES: dict[str, dict[str, Any]] = {
    "ppo": ROLLOUT,
    "dqn": {**REPLAY, "double": True, "dueling": True, "noisy": "factorized", "priority.alpha": 0.6},
    "sac": REPLAY,
    "td3": REPLAY,
    "iql": REPLAY,
    "a2c": {"num_envs": 4, "n_steps": 5, "total_timesteps": 20 * UPDATES},
}
#: The options, and the number of recorded steps: a loss that reads a scheduled option has one for each of the first
#: four values, if more than three steps use the value.
CHOSEN: list[tuple[str, dict[str, Any], int]] = [
    ("ppo", {}, 1), ("dqn", {}, 1), ("sac", {}, 2), ("td3", {}, 2), ("iql", {}, 2), ("a2c", {}, 1),
    ("ppo", {"clip_range": "linear(0.3,0.1)"}, VALUES), ("ppo", {"learning_rate": "linear(1e-3,0)"}, 1),
    ("ppo", {"max_grad_norm": "linear(0.5,0.1)"}, 1), ("sac", {"ent_coef": "linear(1,0.1)", "autotune": False}, 0),
    ("td3", {"target_policy_noise": "linear(0.2,0)"}, 1), ("dqn", {"tau": "linear(1,0.5)"}, 1),
    ("ppo", {"popart": True, "net.normalize_obs": True}, 1), ("sac", {"optimizer": "adamw"}, 2),
    ("dqn", {"optimizer": "sgd", "optimizer_kwargs.momentum": 0.9}, 1), ("dqn", {"optimizer": "rmsprop"}, 1),
    ("dqn", {"optimizer": "NAdam"}, 0),
]  # fmt: skip
CPU = torch.device("cpu")
#: Other algorithms with their environment, and whether their steps are recorded: not if batches are whole
#: episodes, and not if a trust region or K-FAC changes the weights.
OTHERS: list[tuple[str, str, dict[str, Any], bool]] = [
    *((name, "Chain", REPLAY, True) for name in ("qrdqn", "c51", "iqn", "rainbow-iqn", "sac-discrete")),
    *((name, "Continuous", REPLAY, True) for name in ("ddpg", "cql", "crossq", "tqc")),
    ("crossq", "Continuous", {**REPLAY, "net.normalize_obs": True}, True),
    ("cql", "Continuous", {**REPLAY, "bc_steps": 10}, True),
    ("r2d2", "Recall", {**REPLAY, "sequence_length": 6, "burn_in": 2, "batch_size": 4}, True),
    *((name, "Chain", ONE, True) for name in ("nstep-q", "acer", "vac")),
    *((name, "Chain", {"num_envs": 4, "total_timesteps": 4000}, True) for name in ("vqn", "vsarsa")),
    ("acer-continuous", "Continuous", ONE, True),
    ("ppo", "Masked", ROLLOUT, True), ("ppo-recurrent", "Recall", ROLLOUT, True), ("mappo", "Chain", ROLLOUT, True),
    ("dqn", "Pixels", REPLAY, True), ("a2c", "Chain", {**ONE, "popart": True, "noisy": "factorized"}, True),
    ("vpg", "Chain", ONE, False), ("acktr", "Chain", ONE, False), ("trpo", "Chain", ONE, False),
]  # fmt: skip
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


class Rerun(Generic[T]):
    """Replaces `CudaGraph` on any device: computes everything again, and returns the same memory each time."""

    def __init__(self, body: Callable[[], T], device: torch.device, pool: Any = None) -> None:
        self.body = body
        self.pool = pool
        self.memory: dict[object, Tensor] = {}
        self.result: Any = None

    def replay(self) -> Any:
        self.result = self.body()
        if not isinstance(self.result, Packed):
            return self.keep("alone", self.result)
        self.result.numbers = {kind: self.keep(kind, one) for kind, one in self.result.numbers.items()}
        return self.result

    def keep(self, name: object, value: Tensor) -> Tensor:
        return self.memory.setdefault(name, torch.empty_like(value)).copy_(value)


@pytest.fixture
def rerun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudagraphs, "CudaGraph", Rerun)
    monkeypatch.setattr(torch_forward, "CudaGraph", Rerun)
    monkeypatch.setattr(Plan, "check", lambda plan: None)  # it requires a GPU


def env(algorithm: str) -> str:
    return "Continuous" if algorithm in ("sac", "td3", "iql") else "Chain"


def losses(learner: Any) -> list[pure[Any, Any, Any]]:
    return [part for part in vars(type(learner)).values() if isinstance(part, pure) and part.minimized]


def count_recorded(learner: Any) -> int:
    """Count the recorded steps of a learner."""
    count: int = learner._recorded_steps.count
    return count


def run_twins(algorithm: str, options: dict[str, Any], world: str = "") -> tuple[Any, Any]:
    """Update a learner twenty times, and another with graphs on the same batches; both are compared after the last."""
    given = {"net.hidden": [8], **CASES.get(algorithm, {}), **options}
    runner = make_runner(algorithm, world or env(algorithm), given)
    eager = runner.learner
    results = list[tuple[Result, Result, dict[str, float]]]()
    graphs = type(eager)(runner.actor.env.spec, eager.config, replace(eager.context, cudagraphs=True))
    while runner.clock.updates < UPDATES:
        step = runner.actor.step()
        runner.actor.buffer.add(step)
        for batch in runner.actor.buffer.batches(runner.clock):
            pair = eager.update(batch, runner.clock), graphs.update(batch, runner.clock)
            runner.actor.buffer.feedback(batch, pair[0])
            runner.clock.updates += 1
            results.append((*pair, {name: float(value) for name, value in pair[1].metrics.items()}))
    for expected, actual, then in results:
        assert {name: float(value) for name, value in actual.metrics.items()} == then
        torch.testing.assert_close(actual.metrics, expected.metrics, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(actual.priority, expected.priority, rtol=1e-3, atol=1e-4)
    for name, one in eager.named_parameters():
        torch.testing.assert_close(dict(graphs.named_parameters())[name], one, rtol=1e-3, atol=1e-4)
    return eager, graphs


@pytest.mark.usefixtures("rerun")
@pytest.mark.parametrize(("algorithm", "options", "steps"), CHOSEN)
def test_replayed_steps_equal_computed_steps(algorithm: str, options: dict[str, Any], steps: int) -> None:
    eager, graphs = run_twins(algorithm, options)
    assert count_recorded(graphs) == steps
    assert f"; {steps or 'no'} gradient steps as CUDA graphs" in graphs.describe_gradients()
    assert "CUDA" not in eager.describe_gradients()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize(("algorithm", "world", "options", "whether"), OTHERS)
def test_replayed_steps_equal_computed_steps_of_other_algorithms(
    algorithm: str, world: str, options: dict[str, Any], whether: bool, device: str, request: pytest.FixtureRequest
) -> None:
    if device == "cpu":
        request.getfixturevalue("rerun")
    _, graphs = run_twins(algorithm, {"device": device, **options}, world)
    assert (count_recorded(graphs) > 0) == whether


@CUDA
@pytest.mark.filterwarnings("default")  # inductor warns of missing tools
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("algorithm", "options", "steps"), CHOSEN)
def test_gpu_replay_equals_computed_steps(
    algorithm: str, options: dict[str, Any], steps: int, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled and (algorithm, options) not in [(name, {}) for name in ("ppo", "dqn", "sac", "td3")]:
        pytest.skip("these four are compiled as well")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    _, graphs = run_twins(algorithm, {"device": "cuda", "compile": compiled, **options})
    assert count_recorded(graphs) == steps


def run_until(algorithm: str, options: dict[str, Any], at: int) -> Any:
    """Return a runner that has stopped after `at` env steps."""
    runner = make_runner(algorithm, env(algorithm), {"net.hidden": [8], **CASES[algorithm], **options})

    def poll() -> None:
        runner.clock.stop = runner.clock.steps >= at

    runner.run(poll)
    return runner


def check_resumed(algorithm: str, options: dict[str, Any]) -> None:
    """Stop a run in the middle and resume it; it computes its first steps again and must equal the whole run."""
    whole, part = (run_until(algorithm, {"cudagraphs": True, **options}, at) for at in (320, 160))
    other = run_until(algorithm, {"cudagraphs": True, **options}, 0)
    other.load_state_dict(copy.deepcopy(part.state_dict()))
    while other.clock.steps < whole.clock.steps:
        step_and_train(other.actor, other.clock, other.meter)
    assert count_recorded(whole.learner) == count_recorded(other.learner) > 0
    for name, one in whole.learner.named_parameters():
        assert torch.equal(dict(other.learner.named_parameters())[name], one), name


@pytest.mark.usefixtures("rerun")
@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name in ("ppo", "sac") else pytest.mark.slow) for name in CASES]
)
def test_resumed_run_takes_the_same_steps(algorithm: str) -> None:
    check_resumed(algorithm, {})


@CUDA
@pytest.mark.filterwarnings("default")
@for_each("compiled", [False, True])
@for_each("algorithm", CASES)
def test_run_resumed_on_a_gpu_is_exact(algorithm: str, compiled: bool) -> None:
    check_resumed(algorithm, {"device": "cuda", "compile": compiled})


@dataclass(frozen=True)
class Options(Config):
    """Some of these options are read by the loss of `Learner`."""

    scale: float = 1.0
    other: float = 0.0


class Learner:
    """The minimal algorithm for losses: two parameters, options and graphs."""

    def __init__(self, rule: UpdateRule | None = None) -> None:
        self.weight = nn.Parameter(torch.ones(2))
        self.config = Options()
        self._recorded_steps = Graphs(CPU)
        self.optimizer = self.make_optimizer([self.weight], rule or SGD())

    def make_optimizer(self, parameters: list[nn.Parameter], rule: UpdateRule) -> Optimizer:
        make_optimizer = Optimizer(parameters, name="it", rule=rule, learning_rate=0.1)
        room().record(make_optimizer, self._recorded_steps)
        return make_optimizer

    def compute(self, x: Tensor, now: Options, **more: Any) -> tuple[Tensor, dict[str, Any]]:
        loss = now.scale * (self.weight @ x)
        return loss, {"x": [x, (2 * x,)], "count": torch.tensor(3), "none": None}

    def loss(self, x: Any, **named: Any) -> Any:
        named = {"now": self.config, **named}
        return self._recorded_steps.call(Learner.compute, Learner.compute, self, x, **named)

    def step(self, x: Any, **named: Any) -> Any:
        loss, more = self.loss(x, **named)
        self.optimizer.minimize(loss, Clock(1))
        return loss, more


@pytest.mark.usefixtures("rerun")
def test_copies_leave_the_graph_and_keep_their_shapes() -> None:
    learner = Learner()
    for _ in range(WARM + 1):
        first, more = learner.step(torch.ones(2))
    second, _ = learner.step(torch.zeros(2))
    assert count_recorded(learner) == 1
    assert (first.item(), second.item(), more["count"].item(), more["none"]) == (pytest.approx(1.4), 0, 3, None)
    assert [more["x"][0].tolist(), more["x"][1][0].tolist()] == [[1, 1], [2, 2]]


@pytest.mark.usefixtures("rerun")
@pytest.mark.parametrize("rule", [SGD(), SGD(0.9), RMSProp(), Adam(), AdamW()])
def test_rule_reads_its_rate_from_the_device(rule: UpdateRule) -> None:
    one = Learner(rule)
    other = Learner(copy.deepcopy(rule))
    other.optimizer.on_device = None
    for number in range(6):
        x = torch.tensor([1.0, number])
        one.step(x)
        other.optimizer.minimize(other.compute(x, other.config)[0], Clock(1))
    torch.testing.assert_close(one.weight, other.weight)
    assert count_recorded(one) == 1


def test_other_rules_are_not_recorded() -> None:
    assert Learner(Torch("NAdam", {})).optimizer.on_device is None


@pytest.mark.usefixtures("rerun")
def test_each_signature_has_its_own_step() -> None:
    learner = Learner()
    for more in ({}, {"further": torch.ones(1)}, {"further": torch.ones(2)}, {"name": "a"}, {"name": "b"}):
        for _ in range(WARM + 2):
            learner.step(torch.ones(2), **more)
    assert count_recorded(learner) == 5


@pytest.mark.usefixtures("rerun")
def test_step_depends_on_the_options_that_the_loss_reads() -> None:
    learner = Learner()
    for number in range(8):
        before = learner.weight[0].item()
        learner.step(torch.ones(2), now=replace(learner.config, scale=number // 4, other=number))
        assert learner.weight[0].item() == pytest.approx(before - 0.1 * (number // 4))
    assert count_recorded(learner) == 2


@pytest.mark.usefixtures("rerun")
def test_loss_that_waits_for_its_step_is_not_recorded() -> None:
    learner = Learner()
    for _ in range(WARM + 2):
        pair = [learner.loss(torch.ones(2))[0] for _ in range(2)]
        for loss in pair:
            learner.optimizer.minimize(loss, Clock(1))
    assert count_recorded(learner) == 0
    other = Learner()
    for _ in range(2):
        other.loss(torch.ones(2))
    assert not other._recorded_steps.waiting  # or autograd would keep their memory


@pytest.fixture
def replayer(rerun: None) -> Learner:
    """Return a learner with a recorded step."""
    learner = Learner()
    for _ in range(WARM + 1):
        learner.step(torch.ones(2))
    assert count_recorded(learner) == 1
    return learner


def test_replayed_loss_may_be_skipped_but_not_used_late(replayer: Learner) -> None:
    late, _ = replayer.loss(torch.ones(2))
    before = replayer.weight[0].item()
    replayer.step(torch.ones(2))
    assert replayer.weight[0].item() == pytest.approx(before - 0.1)
    with pytest.raises(PluginError, match="computed again before"):
        replayer.optimizer.minimize(late, Clock(1))


def test_replayed_loss_goes_unchanged_to_its_optimizer(replayer: Learner) -> None:
    with pytest.raises(PluginError, match="not what the loss method returned"):
        replayer.optimizer.minimize(0.5 * replayer.loss(torch.ones(2))[0], Clock(1))
    with pytest.raises(PluginError, match="a loss went to a different optimizer"):
        replayer.make_optimizer([nn.Parameter(torch.ones(2))], SGD()).minimize(
            replayer.loss(torch.ones(2))[0], Clock(1)
        )


def test_arguments_that_no_graph_can_read_are_computed(replayer: Learner) -> None:
    other = nn.Parameter(torch.ones(2))
    for given in (other, 2 * other, Named(torch.ones(2), 1)):
        x = given if isinstance(given, Tensor) else given.one
        before = replayer.weight[0].item()
        more = {"named": np.ones(2)} if x is not given else {}
        replayer.step(x, **more)
        assert replayer.weight[0].item() == pytest.approx(before - 0.1 * x[0].item())
    assert count_recorded(replayer) == 1


class Named(NamedTuple):
    one: Tensor
    two: int


@pytest.mark.usefixtures("rerun")
@pytest.mark.parametrize(("extra", "steps"), [(Named(torch.ones(1), 2), 1), (Options(), 1), (np.ones(1), 0)])
def test_extra_results_keep_their_type_or_prevent_recording(extra: Any, steps: int) -> None:
    learner = Learner()
    plain = lambda self, x, now: (self.weight @ x, extra)  # noqa: E731
    for _ in range(WARM + 2):
        loss, metrics = learner._recorded_steps.call(plain, plain, learner, torch.ones(2), learner.config)
        learner.optimizer.minimize(loss, Clock(1))
        assert metrics == extra
    assert count_recorded(learner) == steps


@pytest.mark.usefixtures("rerun")
def test_loss_of_two_optimizers_is_not_recorded() -> None:
    learner = Learner()
    more = learner.make_optimizer([nn.Parameter(torch.ones(2))], SGD())
    for number in range(2 * WARM + 2):
        loss, _ = learner.loss(torch.ones(2))
        if number % 2:
            learner.optimizer.minimize(loss, Clock(1))
        else:
            more.minimize(loss + more.parameters[0].sum(), Clock(1))
    assert count_recorded(learner) == 0


@pytest.mark.usefixtures("rerun")
def test_parameter_without_gradient_is_unchanged() -> None:
    learner = Learner()
    held = nn.Parameter(torch.ones(2), requires_grad=False)
    learner.optimizer = learner.make_optimizer([learner.weight, held], SGD())
    for _ in range(WARM + 1):
        learner.step(torch.ones(2))
    assert count_recorded(learner) == 1
    assert held.tolist() == [1, 1]


def test_copy_records_its_own_steps(replayer: Learner) -> None:
    other = copy.deepcopy(replayer)
    assert count_recorded(other) == len(pickle.loads(pickle.dumps(replayer._recorded_steps)).steps) == 0
    assert other.optimizer.on_device.graphs is other._recorded_steps
    before = replayer.weight[0].item()
    for _ in range(WARM + 1):
        other.step(torch.ones(2))
    assert count_recorded(other) == 1
    assert replayer.weight[0].item() == before


@pytest.mark.usefixtures("rerun")
def test_forward_passes_are_recorded_by_shape_and_see_new_weights() -> None:
    module = nn.Linear(3, 2)
    graph, plain = GraphForward(module), TorchForward(module)
    for number in range(2 * WARM):
        for rows in (1, 4):
            obs = np.random.default_rng(number).normal(size=(rows, 3)).astype(np.float32)
            np.testing.assert_array_equal(graph(obs), plain(obs))
        with torch.no_grad():
            module.weight.add_(1)
    assert len(graph.graphs) == 2
    assert not copy.deepcopy(graph).graphs


@pytest.mark.usefixtures("rerun")
def test_loss_that_is_not_finite_is_noticed_before_saving() -> None:
    learner = Learner()
    learner.step(torch.ones(2))
    learner.optimizer.state_dict()
    learner.step(torch.full((2,), torch.inf))
    with pytest.raises(NonFinite, match=r"within the last \d+ steps, it met a loss or a gradient that is not finite"):
        learner.optimizer.state_dict()
    other = Learner()
    finite = torch.zeros(2)
    for number in range(2 * CHECK_EVERY - 1):
        other.step(finite if number else torch.full((2,), torch.inf))
    with pytest.raises(NonFinite, match="within the last 64 steps"):
        other.step(finite)
    other.optimizer.load_state_dict(Learner().optimizer.state_dict())
    other.optimizer.state_dict()


def test_flatten_and_restore_trees() -> None:
    tree = (torch.ones(2, 3), [torch.tensor(2), None], {"a": torch.zeros(0)}, 4)
    leaves = Leaves(tree)
    assert len(leaves.tensors) == 3
    assert hash(leaves.kind) == hash(Leaves(map_tree(tree, lambda one: one)).kind)
    assert Leaves((torch.ones(3, 2), *tree[1:])).kind != leaves.kind
    torch.testing.assert_close(Packed(tree).copy(), tree)
    assert (leaves.unknown, Leaves((tree, np.ones(1))).unknown) == (None, np.ndarray)
