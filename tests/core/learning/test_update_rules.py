"""Update rules against torch's optimizers: steps, options, saved and shared state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant, linear
from rlplug_core.errors import BadConfig
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.optimizer_options import OptimizerOptions
from rlplug_core.learning.update_rules import RULES, Adam, RMSProp
from tests.core.fakes import assert_same, save_and_load
from tests.core.learning.test_optimizer import loss_of, network, shared_pair, train, weights
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")

#: The name and options of a rule, and torch's class with its arguments.
PAIRS: dict[str, tuple[str, OptimizerOptions, Any, dict[str, Any]]] = {
    "adam": ("adam", OptimizerOptions(eps=1e-8), torch.optim.Adam, {}),
    "adam with decay": (
        "adam", OptimizerOptions(weight_decay=0.1), torch.optim.Adam, {"eps": 1e-5, "weight_decay": 0.1}
    ),
    "adamw": (
        "adamw", OptimizerOptions((0.8, 0.95), weight_decay=0.1), torch.optim.AdamW,
        {"betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.1},
    ),
    "adamw by default": ("adamw", OptimizerOptions(eps=1e-8), torch.optim.AdamW, {}),
    "rmsprop": ("rmsprop", OptimizerOptions(eps=1e-20), torch.optim.RMSprop, {"alpha": 0.99, "eps": 0.0}),
    "sgd": ("sgd", OptimizerOptions(), torch.optim.SGD, {}),
    "sgd with momentum": (
        "sgd", OptimizerOptions(momentum=0.9, weight_decay=0.1), torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}
    ),
    "nesterov": (
        "sgd", OptimizerOptions(momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}
    ),
    "NAdam": ("torch.optim.NAdam", OptimizerOptions((0.8, 0.9)), torch.optim.NAdam, {"betas": (0.8, 0.9)}),
    "RMSprop": (
        "RMSprop", OptimizerOptions(alpha=0.9, momentum=0.5), torch.optim.RMSprop, {"alpha": 0.9, "momentum": 0.5}
    ),
    **{
        name: (name, OptimizerOptions(), getattr(torch.optim, name), {})
        for name in ("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "RAdam", "Rprop", "SGD", "AdamW")
    },
}  # fmt: skip


def pairs(*without: str) -> Any:
    return pytest.mark.parametrize("case", [name for name in PAIRS if name not in without])


def make_optimizer(case: str, net: nn.Module, clip: float | None = 0.5) -> Optimizer:
    name, options, _, _ = PAIRS[case]
    return Optimizer(
        net.parameters(), name="network", rule=options.rule(name), learning_rate=linear(1e-2, 5e-3), max_grad_norm=clip
    )


@pairs("Adafactor")  # its step is relative to the root mean square of a tensor, and here all parameters are one tensor
@pytest.mark.parametrize("clip", [None, 0.5])
def test_rule_equals_torch_on_separate_tensors(case: str, clip: float | None) -> None:
    """Eight steps with different learning rates."""
    ours = network()
    theirs = network()
    clock = Clock(8)
    _, _, cls, arguments = PAIRS[case]
    optimizer = make_optimizer(case, ours, clip)
    reference = cls(theirs.parameters(), lr=1e-2, **arguments)
    for step in range(8):
        clock.steps = step
        norm = optimizer.minimize(loss_of(ours, step), clock)
        reference.zero_grad()
        loss_of(theirs, step).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        assert float(norm) == pytest.approx(float(expected), rel=1e-4)
        reference.param_groups[0]["lr"] = linear(1e-2, 5e-3)(step / 8)
        reference.step()
    assert any((a != b).any() for a, b in zip(weights(ours), weights(network()), strict=True))
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-4, atol=1e-6)


@for_each("steps", [0, 3])
@pairs()
def test_state_resumes_exactly(case: str, steps: int) -> None:
    """Also before the first step: a checkpoint can be made between any two vector steps."""
    net = network()
    resumed_net = network(1)
    optimizer = make_optimizer(case, net)
    resumed = make_optimizer(case, resumed_net)
    train(net, optimizer, range(steps))
    resumed_net.load_state_dict(save_and_load(dict(net.state_dict())))
    resumed.load_state_dict(save_and_load(optimizer.state_dict()))
    for pair in ((net, optimizer), (resumed_net, resumed)):
        train(*pair, range(3, 6))
    assert_same(dict(net.state_dict()), dict(resumed_net.state_dict()))
    assert_same(optimizer.state_dict(), resumed.state_dict())


@pairs()
def test_workers_share_the_state_of_a_rule(case: str) -> None:
    """Two workers in turn equal one optimizer: each continues from the state of the other."""
    name, options, _, _ = PAIRS[case]
    net, owner, workers = shared_pair(options.rule(name), constant(1e-2))
    single = network()
    plain = Optimizer(
        single.parameters(), name="network", rule=options.rule(name), learning_rate=constant(1e-2), max_grad_norm=0.5
    )
    for step in range(6):
        worker, optimizer = workers[step % 2]
        optimizer.rule = options.rule(name) if step < 2 else optimizer.rule  # each process has its own rule
        optimizer.pull()
        train(worker, optimizer, range(step, step + 1))
        train(single, plain, range(step, step + 1))
    owner.pull()
    assert_same(dict(net.state_dict()), dict(single.state_dict()))


def test_options_override_defaults_of_algorithms_and_rules() -> None:
    """A default that the rule does not use is ignored."""
    options = OptimizerOptions(betas=(0.1, 0.2))
    adam = options.rule("adam", eps=1e-8)
    rms = OptimizerOptions().rule("rmsprop", betas=(0.5, 0.5))
    assert isinstance(adam, Adam)
    assert (adam.betas, adam.eps) == ((0.1, 0.2), 1e-8)
    assert isinstance(rms, RMSProp)
    assert (rms.alpha, rms.eps) == (0.99, 1e-5)
    nadam = OptimizerOptions(eps=1e-3).rule("NAdam", eps=1e-8, alpha=0.5)
    assert nadam.arguments == {"eps": 1e-3}  # type: ignore[attr-defined]
    for name, arguments in (("NAdam", {"eps": 1e-7}), ("Adafactor", {}), ("Adagrad", {})):
        assert OptimizerOptions().rule(name, eps=1e-7).arguments == arguments  # type: ignore[attr-defined]


@for_each("name, options, sentence", [
        ("NAdma", {}, r"no optimizer 'NAdma'; did you mean 'NAdam'.*adam, adamw, rmsprop, rmsprop_tf, sgd, or of"),
        ("zzz", {}, r"no optimizer 'zzz'; take adam"),
        ("K-FAC", {}, r"K-FAC needs the inputs of each layer .* write 'rlplug run acktr ENV'"),
        ("Optimizer", {}, "no optimizer 'Optimizer'"),
        ("LBFGS", {}, r"torch.optim.LBFGS does not step on one flat tensor \(.*closure.*\); use adam, adamw"),
        ("Nope", {}, r"of torch.optim (?!.*(LBFGS|Muon|SparseAdam)).*NAdam"),
        ("Muon", {}, "torch.optim.Muon does not step on one flat tensor"),
        ("SparseAdam", {}, "torch.optim.SparseAdam does not step on one flat tensor"),
        ("sgd", {"eps": 1.0},
         r"'sgd' does not use 'optimizer_kwargs.eps'; its options are .*optimizer_kwargs.momentum"),
        ("sgd", {"nesterov": True}, r"nesterov needs momentum, .* give --optimizer-kwargs.momentum too"),
        ("rmsprop", {"nesterov": True},
         r"does not use 'optimizer_kwargs.nesterov'; its options are optimizer_kwargs.alpha, "),
        ("adam", {"betas": (0.9,)},
         r"option 'optimizer_kwargs.betas': expected two numbers .* below 1, got 0.9; write"),
        ("NAdam", {"betas": (0.9,)}, "option 'optimizer_kwargs.betas': expected two numbers"),
        ("adamw", {"betas": (0.9, 0.99, 0.999)}, r"option 'optimizer_kwargs.betas': .* got 0.9, 0.99, 0.999; write"),
        ("adam", {"betas": (1.0, 1.0)}, r"option 'optimizer_kwargs.betas': .*, got 1.0, 1.0; write"),
        ("adam", {"betas": (0.9, -0.1)}, r"option 'optimizer_kwargs.betas': .*, got 0.9, -0.1; write"),
        ("NAdam", {"alpha": 0.5},
         r"does not use 'optimizer_kwargs.alpha'; its options are optimizer_kwargs.betas, optimizer_kwargs.eps"),
    ])  # fmt: skip
def test_invalid_options_raise_one_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence) as caught:
        OptimizerOptions(**options).rule(name)
    assert "\n" not in str(caught.value)


def test_betas_can_be_0() -> None:
    assert OptimizerOptions(betas=(0.0, 0.5)).rule("adam").betas == (0.0, 0.5)  # type: ignore[attr-defined]


def test_optimizer_that_needs_several_tensors_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.param_groups[1]

    monkeypatch.setattr(torch.optim, "Greedy", Greedy, raising=False)
    with pytest.raises(BadConfig, match=r"Greedy does not step on one flat tensor \(list index out of range\); use"):
        OptimizerOptions().rule("Greedy")


def test_optimizer_with_state_other_than_tensors_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.state[self.param_groups[0]["params"][0]]["history"] = [1.0]

    monkeypatch.setattr(torch.optim, "Odd", Odd, raising=False)
    with pytest.raises(
        BadConfig, match="Odd keeps 'history', which is not a tensor and can be neither saved nor shared"
    ):
        OptimizerOptions().rule("Odd")


def test_state_follows_replaced_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replacing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            parameter: Tensor = self.param_groups[0]["params"][0]
            held = self.state[parameter]
            held["sum"] = held.get("sum", torch.zeros_like(parameter)) + parameter.grad

    monkeypatch.setattr(torch.optim, "Replacing", Replacing, raising=False)
    parameters = torch.ones(2)
    rule = OptimizerOptions().rule("Replacing")
    state = rule.start(parameters)
    for _ in range(3):
        rule.step(parameters, torch.ones(2), state, 1.0)
    assert state["sum"].tolist() == [3.0, 3.0]


def test_every_rule_is_compared_with_torch() -> None:
    assert RULES.keys() - {"rmsprop_tf"} <= {name for name, _, _, _ in PAIRS.values()}


@pytest.mark.parametrize(("name", "start"), [("rmsprop", 0.0), ("rmsprop_tf", 1.0)])
def test_rmsprop_mean_square_starts_at_0_and_tensorflows_at_1(name: str, start: float) -> None:
    """RMSPropOptimizer of TensorFlow 1 and RMSpropTFLike of Stable-Baselines3 start with ones."""
    rule = OptimizerOptions().rule(name)
    parameters = torch.tensor([1.0, 2.0])
    gradient = torch.tensor([4e-4, -1e-2])
    square = torch.full((2,), start)
    state = rule.start(parameters)
    expected = parameters.clone()
    for _ in range(3):
        rule.step(parameters, gradient, state, 0.1)
        square = 0.99 * square + 0.01 * gradient**2
        expected -= 0.1 * gradient / (square + 1e-5).sqrt()
    torch.testing.assert_close(parameters, expected)


def test_initial_mean_square_is_an_option() -> None:
    rule = OptimizerOptions(initial_accumulator_value=0.25).rule("rmsprop_tf")
    assert rule.start(torch.zeros(2))["square"].tolist() == [0.25, 0.25]
