"""An infinite or NaN loss or gradient stops a run before it changes weights; the error names a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Samples
from rlplug_core.clock import Clock
from rlplug_core.config.options import Config, Natural, Positive
from rlplug_core.config.schedules import constant
from rlplug_core.errors import NonFinite
from rlplug_core.learning.deferred_nan_check import DeferredNanCheck
from rlplug_core.learning.kfac import KFAC
from rlplug_core.learning.natural import TrustRegion
from rlplug_core.learning.optimizer import Optimizer, check_now
from rlplug_core.learning.update_rules import RMSProp
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.api import train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.journal import read
from rlplug_core.runs.messages import advice, last_good
from rlplug_core.types import Result
from tests.core.fakes import ENVS, TINY, Tiny, TinyConfig, assert_same, make_runner
from tests.core.learning.test_optimizer import loss_of, network, shared_pair, weights

FILE = Path(__file__).resolve()
SHORT: dict[str, Any] = {"total_timesteps": 200, "final_eval_episodes": 0}
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class FailingConfig(TinyConfig):
    """Options of Failing."""

    finite: Natural = 5  # number of finite losses


class Failing(Tiny):
    """Its loss becomes NaN after some updates."""

    Config = FailingConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    config: FailingConfig

    def build(self) -> None:
        super().build()
        self.losses = 0

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(batch)
        self.losses += 1
        return loss * (1.0 if self.losses <= self.config.finite else NAN), metrics


class Overflowing(Failing):
    """Overflows float32 in NumPy."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        assert np.square(np.full(1, 1e30, np.float32)) == INF
        return super().learn(batch, now, clock)


class FailingLate(Failing):
    """Checks a loss one update later, as on a device."""

    def build(self) -> None:
        super().build()
        self.optim.check = DeferredNanCheck(check_now)
        self.optim.gradient_array = None


class FailingEarly(FailingLate):
    """Raises before its loss is checked, like an environment with a NaN action."""

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        result = super().learn(batch, now, clock)
        if self.losses > self.config.finite:
            raise RuntimeError("the action is NaN")
        return result


@pytest.mark.parametrize(
    ("factor", "added", "sentence"),
    [
        (NAN, 0.0, "net met the loss nan and a gradient of norm nan"),
        (INF, 0.0, "net met the loss inf and a gradient of norm"),
        (1.0, NAN, r"net met the loss nan and a gradient of norm \d"),
        (1.0, -INF, r"net met the loss -inf and a gradient of norm \d"),
    ],
)
def test_non_finite_loss_does_not_change_weights(factor: float, added: float, sentence: str) -> None:
    net = network()
    optimizer = Optimizer(
        net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(1e-2), max_grad_norm=0.5
    )
    optimizer.name = "net"
    optimizer.minimize(loss_of(net, 0), Clock(1))
    before = weights(net)
    state = optimizer.state["square"].clone()
    with pytest.raises(NonFinite, match=sentence):
        optimizer.minimize(loss_of(net, 1) * factor + added, Clock(1))
    assert_same(before, weights(net))
    assert_same(state, optimizer.state["square"])


def test_non_finite_loss_does_not_change_shared_weights() -> None:
    _, owner, [(worker, optimizer), _] = shared_pair(RMSProp(), constant(1e-2))
    before = owner.target.clone()
    with pytest.raises(NonFinite):
        optimizer.minimize(loss_of(worker, 0) * NAN, Clock(1))
    assert_same(before, owner.target)


def test_nan_in_one_gradient_raises() -> None:
    """Clipping by the norm would make all gradients NaN."""
    net = network()
    optimizer = Optimizer(
        net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(1e-2), max_grad_norm=0.5
    )
    with pytest.raises(NonFinite, match="a gradient of norm nan"):
        optimizer.minimize(loss_of(net, 0) + (net[0].bias[0] * 0.0).sqrt().nan_to_num(0.0), Clock(1))


def test_numpy_overflow_does_not_warn(tmp_path: Path) -> None:
    with pytest.raises(NonFinite, match=r"^Overflowing\.actor_critic met the loss nan"):
        train(f"{FILE}:Overflowing", f"{ENVS}:Chain", SHORT, out=tmp_path, hooks=False)


def test_error_after_a_nan_names_the_nan(tmp_path: Path) -> None:
    with pytest.raises(
        NonFinite, match=r"at the last step, FailingEarly\.actor_critic met the loss nan .* at step"
    ) as caught:
        train(f"{FILE}:FailingEarly", f"{ENVS}:Chain", SHORT, out=tmp_path, hooks=False)
    assert "take smaller steps" in str(caught.value)
    cause: Any = caught.value
    while cause is not None and not isinstance(cause, RuntimeError):
        cause = cause.__cause__ or cause.__context__
    assert str(cause) == "the action is NaN"


def test_learners_name_their_optimizers() -> None:
    assert make_runner(TINY).learner.optim.name == "Tiny.actor_critic"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_device_checks_a_loss_one_step_later() -> None:
    """The check does not wait for the current step."""
    net = network().cuda()
    optimizer = Optimizer(
        net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(1e-2), max_grad_norm=0.5
    )
    assert isinstance(optimizer.check, DeferredNanCheck)
    data = torch.ones(5, 3, device="cuda")
    for factor in (1.0, 1.0, NAN):
        optimizer.minimize(net(data).square().sum() * factor, Clock(1))
    with pytest.raises(NonFinite, match="a step ago, network met the loss nan"):
        optimizer.minimize(net(data).square().sum(), Clock(1))


def test_deferred_checks_run_before_saving() -> None:
    net = network()
    optimizer = Optimizer(
        net.parameters(), name="network", rule=RMSProp(), learning_rate=constant(1e-2), max_grad_norm=0.5
    )
    optimizer.check = DeferredNanCheck(check_now)
    optimizer.name = "net"
    optimizer.gradient_array = None
    optimizer.state_dict()
    optimizer.minimize(loss_of(net, 0), Clock(1))
    optimizer.state_dict()
    optimizer.minimize(loss_of(net, 1) * NAN, Clock(1))
    with pytest.raises(NonFinite, match=r"^at the last step, net met the loss nan"):
        optimizer.state_dict()
    with pytest.raises(NonFinite, match=r"^a step ago, net met the loss nan"):
        optimizer.minimize(loss_of(net, 2), Clock(1))


@pytest.mark.parametrize(("loss", "divergence"), [(NAN, 1.0), (1.0, NAN)])
def test_trust_region_raises_for_nan(loss: float, divergence: float) -> None:
    """Otherwise its line search would find no improvement and return silently."""
    module = nn.Linear(2, 2)
    region = TrustRegion(module)
    before = weights(module)
    data = torch.ones(4, 2)

    def scale(factor: float) -> Tensor:
        outputs: Tensor = module(data)
        return outputs.square().sum() * factor

    with pytest.raises(NonFinite, match=r"trust region met the loss (nan|[0-9.]+) or curvature that is not finite"):
        region.step(lambda: scale(loss), lambda: scale(divergence), radius=0.01)
    assert_same(before, weights(module))


def test_kfac_raises_for_nan() -> None:
    layer = nn.Linear(2, 2)
    kfac = KFAC([(layer, None)])
    Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    with kfac.capture() as seen:
        outputs = layer(torch.full((3, 2), NAN))
    kfac.observe(seen, outputs.sum(-1), torch.ones(3))
    with pytest.raises(NonFinite, match="K-FAC's moments of the inputs of layer 0 are not finite"):
        kfac.refresh()


# In runs.

OPTIONS: dict[str, Any] = {
    "total_timesteps": 400, "num_envs": 2, "checkpoint_every": 16, "eval_every": 400, "eval_episodes": 1,
    "final_eval_episodes": 0,
}  # fmt: skip


@pytest.mark.parametrize("runner", [{"runner": "sync"}, {"runner": "async", "inline": True, "workers": 1}])
def test_failed_run_names_step_checkpoint_and_remedy(runner: dict[str, Any], tmp_path: Path) -> None:
    """Seven losses are finite, with 8 env steps each; the eighth one stops the run."""
    with pytest.raises(NonFinite) as caught:
        train(
            f"{FILE}:Failing", f"{ENVS}:Chain", {**OPTIONS, **runner, "finite": 7}, out=tmp_path, name="r", hooks=False
        )
    sentence = str(caught.value)
    good = tmp_path / "r" / "checkpoints" / "step-000000000048"
    assert sentence.startswith(
        "Failing.actor_critic met the loss nan and a gradient of norm nan at step 64, update 7; "
        f"the last good checkpoint is {good}; look at the size of rewards and observations, clip gradients or take "
    )
    assert f" --set learning_rate=0.005 --init {good}' with your other options starts from there" in sentence
    assert caught.value.exit_code == 1
    assert good.is_dir()
    kinds = [(record.kind, record.data) for record in read(tmp_path / "r" / "journal.jsonl")]
    assert kinds[-1] == ("end", {"status": "failed"})
    assert ("error", {"type": "NonFinite", "message": sentence}) in kinds


@pytest.mark.parametrize(("finite", "last"), [(3, 16), (7, 48)])
def test_checkpoints_never_contain_unchecked_weights(finite: int, last: int, tmp_path: Path) -> None:
    """The fourth update is at the checkpoint of step 32, and the eighth is the last one of the run."""
    options = {**OPTIONS, "total_timesteps": 64, "finite": finite}
    at = 8 * (finite + 1)
    with pytest.raises(NonFinite, match=f"^at the last step, .* at step {at}, update {finite + 1}; the last good che"):
        train(f"{FILE}:FailingLate", f"{ENVS}:Chain", options, out=tmp_path, name="r", hooks=False)
    saved = sorted(path.name for path in (tmp_path / "r" / "checkpoints").iterdir())
    assert saved[-1] == f"step-{last:012}"
    assert all(name.startswith("step-") for name in saved), "neither best nor final"
    assert list(read(tmp_path / "r" / "journal.jsonl"))[-1].data == {"status": "failed"}


def test_advice_halves_the_learning_rate_or_names_the_default(tmp_path: Path) -> None:
    """Half of an absurdly large rate is still absurd."""
    for lr, smaller in ((1e30, 0.01), (0.015, 0.0075), (0.01, 0.005)):
        plan = Plan.make(f"{FILE}:Failing", f"{ENVS}:Chain", {"learning_rate": lr})
        assert f" --set learning_rate={smaller}' with" in advice(
            plan, Checkpoints(tmp_path), "Failing.actor_critic met the loss nan"
        )


@dataclass(frozen=True)
class TwoConfig(Config):
    """Options of Two."""

    learning_rate: Positive | None = None  # step size of the policy's optimizer, or its own
    critic_learning_rate: Positive = 0.1  # step size of the critic's optimizer


class Two(Algorithm[Rollout]):
    """An algorithm with two step sizes; one can be none."""

    Config = TwoConfig


@pytest.mark.parametrize(
    ("lr", "what", "smaller"),
    [
        (0.5, "Two.critic met the loss inf", " --set critic_learning_rate=0.05"),
        (0.5, "Two.policy met the loss inf", " --set learning_rate=0.25"),
        (0.5, "Two.optim met the loss inf", " --set learning_rate=0.25 --set critic_learning_rate=0.05"),
        (None, "Two.optim met the loss inf", " --set critic_learning_rate=0.05"),
        (None, "Two.policy met the loss inf", " --set critic_learning_rate=0.05"),
    ],
)
def test_advice_names_the_option_of_the_optimizer(lr: float | None, what: str, smaller: str, tmp_path: Path) -> None:
    """If the optimizer has no option of its own, the advice names all learning rates that are numbers."""
    plan = Plan.make(f"{FILE}:Two", f"{ENVS}:Chain", {"learning_rate": lr})
    assert f" {ENVS}:Chain{smaller}' with your" in advice(plan, Checkpoints(tmp_path), what)


def test_non_finite_loss_in_a_worker_is_reported(tmp_path: Path) -> None:
    options = {**OPTIONS, "runner": "async", "finite": 0, "checkpoint_every": 400}
    message = r"^in worker \d, Failing.actor_critic met the loss nan .*; (there is no|the last good) checkpoint"
    with pytest.raises(NonFinite, match=message):
        train(f"{FILE}:Failing", f"{ENVS}:Chain", options, out=tmp_path, hooks=False)


def test_last_good_skips_non_finite_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert last_good(checkpoints) is None
    for step, value in ((10, 1.0), (20, NAN), (30, INF)):
        checkpoints.save("step", step, {"learner": {"weight": torch.tensor([value]), "more": [{"n": step}]}}, {})
    found = last_good(checkpoints)
    assert found is not None
    assert found.step == 10
