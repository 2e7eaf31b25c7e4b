"""More cases that survived the changes of `bench/mutants.py`: frames, optimizers, networks and sessions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.buffers.frames import Stacked, Whole, frame_channels
from rlplug_core.buffers.sources import BySource
from rlplug_core.clock import Clock
from rlplug_core.errors import PluginError, UsageError
from rlplug_core.learning.natural import TrustRegion
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import Adam
from rlplug_core.loop.chunks import LINE, Places
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.offline import Offline
from rlplug_core.loop.population import Exchange, decide
from rlplug_core.nets.encoders import usual_convolutions
from rlplug_core.nets.heads.bernoulli import Bernoulli
from rlplug_core.nets.recurrent import memory_option
from rlplug_core.nets.renorm import BatchRenorm
from rlplug_core.runs.api import train
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read
from rlplug_core.runs.reproducibility import differences
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Result, State
from tests.core.fakes import ENVS, TINY, make_runner

CHAIN = f"{ENVS}:Chain"
SHORT = {"total_timesteps": 200, "eval_every": 50, "eval_episodes": 2, "final_eval_episodes": 0}


def test_frames_are_stored_whole_if_most_of_them_start_a_stack() -> None:
    """Exactly half is not enough; frames of one channel are found first."""
    still = np.zeros((1, 4, 3, 3), np.uint8)
    assert frame_channels(still, still) == (1, False)
    stacked = Stacked.like(still, 1, False, 4, "memory")
    for time in range(3):
        stacked.put(time, np.full_like(still, time))
    stacked.starts = {0: still[0], 1: still[0]}
    assert stacked.simplest_form(3, "memory") is stacked
    stacked.starts[2] = still[0]
    assert type(stacked.simplest_form(3, "memory")) is Whole


def test_gradient_is_clipped_only_above_the_norm() -> None:
    """The gradient (3, 4) has the norm 5: `minimize` returns it, and a clip of 5.1 changes nothing."""
    for clip, scale in ((5.1, 1.0), (2.5, 2.5 / (5 + 1e-6))):
        parameter = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        seen: list[Any] = []
        rule = Adam()
        optimizer = Optimizer([parameter], name="o", rule=rule, learning_rate=1.0, max_grad_norm=clip)
        optimizer.rule = Recording(seen)  # type: ignore[assignment]
        norm = optimizer.minimize((parameter * torch.tensor([3.0, 4.0], dtype=torch.float64)).sum(), Clock(10))
        assert norm.item() == pytest.approx(5.0)
        assert seen[0] == pytest.approx([3 * scale, 4 * scale], rel=1e-12)
        assert optimizer.gradient.tolist() == [0.0, 0.0]


class Recording:
    """An update rule that records gradients."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, state: Any, lr: Any) -> None:
        self.seen.append(gradient.tolist())


def test_old_memory_options_are_translated() -> None:
    assert memory_option(None, None, None) == ""
    assert memory_option("lstm", None, None) == "lstm"
    assert memory_option(None, "gru", 32) == "gru:units=32"
    assert memory_option("gru", None, 8) == "gru:units=8"
    with pytest.raises(UsageError, match="recurrent_cell is a former option"):
        memory_option("./mine.py:Mine", "gru", None)
    with pytest.raises(UsageError, match="write --memory gru:units=16"):
        memory_option(None, None, 16)


def test_batch_renorm_without_rows_is_finite() -> None:
    """Its moments are 0; the mean of one row is the row."""
    norm = BatchRenorm(2, warmup=0)
    moments: Any = []
    values = torch.tensor([[3.0, -1.0], [5.0, 7.0]])
    assert torch.isfinite(norm(values, torch.zeros(2), moments)).all()
    norm(values, torch.tensor([0.0, 0.3]), moments)
    assert [[moment.tolist() for moment in pair] for pair in moments] == [
        [[0.0, 0.0], [0.0, 0.0]],
        [[5.0, 7.0], [0.0, 0.0]],
    ]
    norm.update_stats(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]))
    assert norm.mean.tolist() == pytest.approx([0.01, 0.02])
    assert norm.variance.tolist() == pytest.approx([1.02, 1.0])
    assert norm.updates.item() == 1


def test_differences_name_both_values() -> None:
    saved = {"cpu": "x", "versions": {"torch": "2.10", "numpy": "2"}}
    now = {"cpu": "x", "versions": {"torch": "2.13"}}
    assert differences(saved, now) == ["torch was 2.10 and is 2.13", "numpy was 2 and is None"]


def end_records(path: Path) -> list[dict[str, Any]]:
    return [record.data for record in read(RunDirectory(path).journal_path, kinds=("end",))]


def test_only_runs_that_stop_early_have_a_reason(tmp_path: Path) -> None:
    whole = train(TINY, CHAIN, SHORT, out=tmp_path, name="whole", hooks=False)
    assert end_records(whole.path) == [{"status": "finished"}]
    early = train(TINY, CHAIN, {**SHORT, "target_return": -1e9}, out=tmp_path, name="early", hooks=False)
    (end,) = end_records(early.path)
    assert end["status"] == "finished"
    assert end["reason"].startswith("stopped at step ")


class CannotSave(Chain):
    """A chain that claims to save its state, but cannot."""

    def state_dict(self) -> State:
        return {"inexact": "Later: a test"}


def test_checkpoint_without_env_state_warns_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SHORT, "checkpoint_every": 40}
    train(TINY, CannotSave, options, out=tmp_path, hooks=False)
    assert capsys.readouterr().err.count("a resume from here on will not be exact") == 1


def test_close_ends_busy_workers() -> None:
    """An exception ends the loop while workers train; close must end them all."""
    runner = make_runner(TINY, CHAIN, runner="async", workers=2, total_timesteps=10**7)

    def poll() -> None:
        if runner.clock.steps > 0:
            raise KeyError("from outside")

    with pytest.raises(KeyError):
        runner.run(poll)
    runner.close()
    assert [child.process.is_alive() for child in runner.children] == [False, False]


def test_usual_convolutions_depend_on_the_smaller_side() -> None:
    small = [(16, 3, 1), (32, 3, 1)]
    middle = [(16, 4, 2), (32, 3, 2)]
    large = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    assert usual_convolutions(9, 15) == small
    assert usual_convolutions(15, 15) == [*small, (32, 3, 2)]
    assert usual_convolutions(16, 16) == usual_convolutions(35, 35) == middle
    assert usual_convolutions(36, 84) == usual_convolutions(84, 84) == large
    assert usual_convolutions(400, 400) == [*large, (64, 3, 2), (64, 3, 2)]


def test_trust_region_without_improvement_restores_parameters() -> None:
    layer = nn.Linear(2, 1).double()
    obs = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    before = layer(obs).detach()
    calls: list[int] = []

    def worse() -> torch.Tensor:
        calls.append(1)
        return layer(obs).sum() + len(calls)

    region = TrustRegion(layer, tries=3)
    start = region.flat.clone()
    move = region.step(worse, lambda: (layer(obs) - before).square().mean(), radius=1e-6)
    assert move.failed == 3
    assert len(calls) == 4
    assert torch.equal(region.flat, start)


def test_shared_arrays_are_aligned_to_cache_lines() -> None:
    places = Places()
    assert [places(shape, "float32").start for shape in ((3,), (LINE // 4,), (LINE // 4 + 1,), (1,))] == [
        line * LINE for line in (0, 1, 2, 4)
    ]
    assert places.size == 5 * LINE


def test_bernoulli_log_prob_equals_torch() -> None:
    """Also on the host."""
    outputs = torch.tensor([[0.5, -2.0, 3.0], [0.0, 1.0, -1.0]])
    action = torch.tensor([[1, 0, 0], [1, 1, 0]], dtype=torch.int8)
    wanted = torch.distributions.Bernoulli(logits=outputs).log_prob(action.float()).sum(-1)
    head = Bernoulli((3,))
    torch.testing.assert_close(head.log_prob(outputs, action), wanted)
    assert head.host_log_prob(outputs.numpy(), action.numpy()) == pytest.approx(wanted.numpy())


def test_interquartile_mean_drops_a_quarter_on_each_side() -> None:
    assert Evaluation((9.0, 0.0, 1.0, 2.0), (1,) * 4, None).iqm == 1.5
    assert Evaluation((9.0, 0.0, 2.0), (1,) * 3, None).iqm == pytest.approx(11 / 3)


def test_restart_restarts_all_sources() -> None:
    restarted: list[int] = []

    class Part:
        def __init__(self, number: int) -> None:
            self.number = number

        def restart(self) -> None:
            restarted.append(self.number)

    numbers = iter((7, 8))
    buffer: BySource[Any] = BySource(lambda: Part(next(numbers)))  # type: ignore[arg-type, return-value]
    buffer.buffer_of(0)
    buffer.buffer_of(3)
    buffer.restart()
    assert restarted == [7, 8]


@pytest.mark.parametrize(("number", "source"), [(2, 0), (0, 2), (-1, 0)])
def test_exchange_rejects_unknown_members(number: int, source: int) -> None:
    class Rule:
        def exchange(self, *_: Any) -> dict[int, Exchange]:
            return {number: Exchange(source, {})}

    members: Any = [SimpleNamespace(number=0), SimpleNamespace(number=1)]
    with pytest.raises(PluginError, match="but the members are 0 to 1"):
        decide(Rule(), "mine", members, {}, np.random.default_rng(0))


def test_offline_run_polls_before_each_update_and_resumes_random_numbers() -> None:
    polls: list[int] = []
    clock = Clock(3)
    buffer: Any = SimpleNamespace(
        batches=lambda clock: ["batch"],
        feedback=lambda batch, result: None,
        state_dict=dict,
        load_state_dict=lambda state: None,
    )
    learner: Any = SimpleNamespace(
        update=lambda batch, clock: Result({}), state_dict=dict, load_state_dict=lambda state: None
    )
    runner = Offline(learner, buffer, clock)
    runner.run(lambda: polls.append(clock.updates))
    assert polls == [0, 1, 2, 3]
    with torch.random.fork_rng(devices=[]):
        state = runner.state_dict()
        first = torch.rand(3)
        runner.load_state_dict(state)
        assert torch.equal(torch.rand(3), first)
