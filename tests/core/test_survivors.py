"""Cases that survived the changes of `bench/mutants.py`: values that a wrong constant or branch changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.buffers.pairs import PairBuffer
from rlplug_core.buffers.sources import BySource
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.learning.losses import rescaled, sequence_priority, unscaled
from rlplug_core.loop import env_timing
from rlplug_core.loop.actor import missing_env_state
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import scale_and_shift
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.runs.api import train
from rlplug_core.runs.curves import episodes
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import BLOCK, Journal
from rlplug_core.runs.policy import Policy
from rlplug_core.runs.warm_start import part_of
from rlplug_core.testing.envs import Chain
from tests.core.fakes import ENVS, TINY, make_runner
from tests.core.stories import dictionary_step

CHAIN = f"{ENVS}:Chain"


def test_rescaled_values_follow_the_paper() -> None:
    """h(x) = sgn(x) (√(|x| + 1) - 1) + c x at 3, 0 and -8."""
    values = torch.tensor([3.0, 0.0, -8.0], dtype=torch.float64)
    assert rescaled(values, 0.01).tolist() == pytest.approx([1.03, 0.0, -2.08])
    assert unscaled(rescaled(values)).tolist() == pytest.approx(values.tolist())


def test_unbounded_box_has_scale_1_and_shift_0() -> None:
    space = spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, 4.0]), dtype=np.float64)
    bounded, scale, shift = scale_and_shift(space)
    assert (bounded.tolist(), scale.tolist(), shift.tolist()) == ([False, True], [1.0, 2.0], [0.0, 2.0])


def test_default_lag_is_two_chunks_per_actor_minus_one() -> None:
    lags = [
        Plan.make(TINY, CHAIN, {"runner": "decoupled", "actors": 3, **given}).max_lag for given in ({}, {"max_lag": 1})
    ]
    assert lags == [5, 1]


def test_plan_has_the_arguments_of_both_environments() -> None:
    env = f"{Path(__file__).with_name('traces.py')}:LogsClose"
    both, training = (
        Plan.make(TINY, env, options).flat for options in ({"env.file": "a", "eval_env.file": "b"}, {"env.file": "a"})
    )
    assert (both["env.file"], both["eval_env.file"], training["env.file"]) == ("a", "b", "a")
    assert "eval_env.file" not in training


def test_episodes_of_a_journal_have_integer_steps(tmp_path: Path) -> None:
    """A run without a journal has no episodes; returns stay floats."""
    path = tmp_path / "journal.jsonl"
    assert {name: len(values) for name, values in episodes(path).items()}["steps"] == 0
    journal = Journal(path)
    journal.write("episodes", 7, {"steps": [3, 7], "returns": [0.5, 1.0], "lengths": [3, 4], "workers": [0, 0]})
    journal.close()
    found = episodes(path)
    assert {found[name].dtype.kind for name in ("steps", "lengths", "workers")} == {"i"}
    assert (found["steps"].tolist(), found["returns"].tolist()) == ([3, 7], [0.5, 1.0])


def test_evaluations_of_many_agents_count_episodes_once() -> None:
    """The standard error of two episodes of two agents is that of the means 2 and 6."""
    found = Evaluation((1.0, 3.0, 5.0, 7.0), (1, 1, 2, 2), agents=("a", "b", "a", "b"))
    assert (found.episodes, found.sem, found.median, found.iqm) == (2, pytest.approx(2.0), 4.0, 4.0)
    assert not found.zero_sum
    assert Evaluation((1.0, -1.0, -2.0, 2.0), (1,) * 4, agents=("a", "b", "a", "b")).zero_sum
    assert not Evaluation((0.0, 0.0), (1, 1)).zero_sum
    assert Evaluation((1.0,), (1,)).sem is None


def test_sequence_priorities_ignore_steps_of_weight_0() -> None:
    """0.9 max + 0.1 mean: of 2, of 4 and 2, of no steps."""
    error = torch.tensor([[-8.0, 4.0, 1.0], [2.0, -2.0, 1.0]])
    weight = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.5, 0.0]])
    assert sequence_priority(error, weight, 0.9).tolist() == pytest.approx([2.0, 3.9, 0.0])


def test_only_noisy_policies_have_noise_with_a_row_per_seed() -> None:
    spec = Chain(2).spec
    plain = PolicyNetwork(spec, Net((4,)))
    noisy = PolicyNetwork(spec, Net((4,)), noisy="factorized")
    generator = np.random.default_rng(1)
    assert plain.fresh_noise(generator) is None
    assert plain.noise_of({}) is None
    noise = noisy.fresh_noise(generator)
    rows = noisy.noise_of({"noise": np.arange(6).reshape(3, 2)})
    assert noise is not None
    assert rows is not None
    assert (noise.ndim, len(rows)) == (1, 6)


class Parts:
    """A buffer that yields its name once and records the feedback."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.received = list[object]()

    def batches(self, clock: Clock) -> Iterator[str]:
        yield self.name

    def feedback(self, batch: str, result: object) -> None:
        self.received.append((batch, result))


def test_feedback_goes_to_the_buffer_that_gave_the_batch() -> None:
    names = iter("ab")
    buffer: Any = BySource(lambda: Parts(next(names)))  # type: ignore[arg-type,return-value]
    parts = [buffer.buffer_of(source) for source in (3, 7)]
    for number, batch in enumerate(buffer.batches(Clock(1))):
        buffer.feedback(batch, number)
    assert [part.received for part in parts] == [[("a", 0)], [("b", 1)]]


def test_missing_env_state_is_found_at_any_depth() -> None:
    why = {"actor": {"env": {"inexact": "a simulator"}}}
    assert missing_env_state(why["actor"]["env"]) == "a simulator"
    assert missing_env_state(why) == "a simulator"
    assert missing_env_state({"workers": {"all": [{"actor": {"env": {"place": 1}}}, why]}}) == "a simulator"
    assert missing_env_state({"actor": {"env": {"place": 1}}}) == ""


def test_episodes_of_one_process_belong_to_worker_0() -> None:
    runner = make_runner(TINY, CHAIN, total_timesteps=200)
    runner.run(lambda: None)
    assert {rank for _, rank, _ in runner.episodes()} == {0}


def train_and_close(file: Path, **options: Any) -> tuple[list[int], list[int]]:
    """Train and close; return the processes of the workers, and those that closed an environment."""
    env = f"{Path(__file__).with_name('traces.py')}:LogsClose"
    runner = make_runner(TINY, env, **{"env.file": str(file), "total_timesteps": 400}, **options)
    runner.run(lambda: None)
    members = [child.process.pid for child in getattr(runner, "children", [])]
    runner.close()
    return members, [int(pid) for pid in file.read_text().split()]


def test_environments_of_actors_and_workers_are_closed_at_the_end(tmp_path: Path) -> None:
    _, closed = train_and_close(tmp_path / "inline", runner="decoupled", actors=2, inline=True)
    assert closed == [os.getpid()] * 2
    members, closed = train_and_close(tmp_path / "workers", runner="async", workers=2)
    assert len(members) == 2
    assert set(members) <= set(closed)


def test_env_timing_closes_its_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes two: with and without wrappers."""
    monkeypatch.setattr(env_timing, "DURATION", 0.001)
    file = tmp_path / "closed"
    env_timing.choose_env_workers(
        Plan.make(TINY, f"{Path(__file__).with_name('traces.py')}:LogsClose", {"env.file": str(file), "env_workers": 0})
    )
    assert len(file.read_text().splitlines()) == 2


def test_lock_error_names_the_process(tmp_path: Path) -> None:
    run = train(TINY, CHAIN, {"total_timesteps": 40, "eval_episodes": 1}, out=tmp_path, hooks=False)
    with RunDirectory(run.path).locked(), pytest.raises(UsageError, match=rf"by process {os.getpid()}; wait for it"):
        RunDirectory(run.path).lock()


def test_policy_reset_clears_the_memory_of_one_row() -> None:
    class Agent:
        def initial(self, rows: int) -> int:
            return 10 * rows

    policy: Any = Policy.__new__(Policy)
    policy._agent = Agent()
    policy.reset()
    assert policy._state == 10
    assert policy._first.tolist() == [True]


def test_incomplete_line_longer_than_a_block_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("start", 0, {})
    journal.close()
    complete = path.read_bytes()
    for torn in (b"x" * (2 * BLOCK + 5), b"x" * (BLOCK - len(complete)), b"{"):
        path.write_bytes(complete + torn)
        Journal(path).close()
        assert path.read_bytes() == complete
    path.write_bytes(b"x" * (BLOCK + 1))
    Journal(path).close()
    assert path.read_bytes() == b""


def test_parameters_belong_to_policy_or_critic() -> None:
    names = ["policy.weight", "q_network.policy"]
    assert [part_of(name, names) for name in names] == ["policy", "critic"]
    assert part_of("q_network.weight", ["q_network.weight"]) == "policy"
    assert part_of("target_policy.weight", names) == "policy"


def test_pair_buffer_copies_steps_and_absent_rows_have_no_next_action() -> None:
    buffer = PairBuffer()
    story = [dictionary_step(time) for time in range(3)]
    story[1].valid[1] = False
    found = []
    for step in story:
        buffer.add(step)
        for array in (step.obs["inner"]["place"], step.reward):
            array.fill(7)
        for batch in buffer.batches(Clock(1)):  # valid until the next one
            parts = (batch.obs["inner"]["place"], batch.reward, batch.extras["next_action"])
            found.append([part[0].tolist() for part in parts])
    assert found == [[[0, 1], [1, 1], [0, -1]], [[10, 11], [1, 1], [0, 0]]]
