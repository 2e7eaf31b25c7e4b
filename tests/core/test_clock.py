"""The clock, its shared form, `due`, and schedules."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlplug_core.clock import AgentClock, Clock, SharedClock, Steering, due
from rlplug_core.config.schedules import constant, cosine, linear, piecewise
from rlplug_core.loop.controllers import TargetReturn, TargetReturnConfig
from rlplug_core.loop.evaluate import Evaluation
from tests.core.fakes import save_and_load

STEPS = st.integers(0, 10**7)
UNIT = st.floats(0, 1)


@given(STEPS, st.integers(0, 10**6), st.integers(0, 10**4))
def test_due_if_a_multiple_is_between(before: int, more: int, every: int) -> None:
    after = before + more
    expected = every > 0 and (after - after % every) > before
    assert due(before, after, every) is expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 60))
def test_due_once_for_each_multiple(moves: list[int], every: int) -> None:
    """For all sizes of steps, `due` is true at most once per move and misses no multiple."""
    steps = 0
    seen = []
    for move in moves:
        if due(steps, steps + move, every):
            seen.append((steps + move) // every)
        steps += move
    assert seen == sorted(set(seen))
    assert (seen[-1] if seen else 0) == steps // every


def test_progress_and_end() -> None:
    clock = Clock(100)
    assert (clock.progress, clock.done) == (0.0, False)
    clock.advance(40)
    assert clock.progress == 0.4
    clock.advance(70)
    assert (clock.progress, clock.done) == (1.0, True)  # never above 1
    clock.limit = 200
    assert (clock.progress, clock.done) == (1.0, False)  # schedules keep the old total
    clock.stop = True
    assert clock.done


@given(st.integers(1, 1000), st.integers(0, 2000), st.integers(0, 2000))
def test_progress_of_earlier_steps(total: int, steps: int, count: int) -> None:
    """It is 0 before the start."""
    assert Clock(total, steps).progress_before(count) == Clock(total, max(0, steps - count)).progress


def test_state_leaves_out_stop() -> None:
    clock = Clock(100, steps=7, updates=3)
    clock.limit = 300
    clock.scale = 0.5
    clock.stop = True
    other = Clock(1)
    other.load_state_dict(save_and_load(clock.state_dict()))
    assert (other.total, other.limit, other.steps, other.updates, other.scale) == (100, 300, 7, 3, 0.5)
    assert not other.stop  # a resumed run was not asked to stop


def test_workers_sum_their_slots_and_stop_together() -> None:
    slots = [5, 0]
    whole = Clock(20)
    one, two = (SharedClock(20, slots, whole, rank) for rank in (0, 1))
    assert one.steps == two.steps == 5
    one.advance(4)
    assert (slots, one.steps, two.steps) == ([9, 0], 9, 5)
    two.advance(2)
    assert (slots, two.steps) == ([9, 2], 11)
    assert not one.done
    whole.stop = True
    assert one.stop
    assert one.done


def test_workers_follow_stop_and_scale_but_cannot_set_them() -> None:
    whole = Clock(20)
    clock = SharedClock(20, [0], whole, 0)
    whole.scale = 0.5
    assert clock.scale == 0.5
    with pytest.raises(AttributeError):
        clock.scale = 1.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        clock.stop = True  # type: ignore[misc]
    clock.load_state_dict({**clock.state_dict(), "scale": 0.1})
    assert clock.scale == 0.5


@given(st.integers(1, 200), st.integers(0, 10**5))
@example(49, 1)
def test_own_env_steps_are_integers_for_all_numbers_of_agents(agents: int, own: int) -> None:
    """A share is a float: 49 times 1/49 is a little below 1."""
    assert AgentClock(Clock(10**8, own * agents), 1 / agents).steps == own


def test_shared_clock_ends_at_its_limit() -> None:
    clock = SharedClock(20, [19, 0], Clock(20), 1)
    assert not clock.done
    clock.advance(1)
    assert clock.done


@given(st.floats(-10, 10), st.floats(-10, 10), UNIT, st.floats(0.01, 1))
def test_schedules_stay_between_start_and_end(start: float, end: float, progress: float, until: float) -> None:
    low = min(start, end) - 1e-9
    high = max(start, end) + 1e-9
    for schedule in (linear(start, end), linear(start, end, until), cosine(start, end)):
        assert schedule(0.0) == pytest.approx(start)
        assert schedule(1.0) == pytest.approx(end, abs=1e-9)
        assert low <= schedule(progress) <= high
    assert constant(start)(progress) == start
    assert linear(start, end, until)(until) == pytest.approx(end, abs=1e-9)


def test_schedules_at_the_midpoint() -> None:
    assert linear(1.0, 0.0)(0.25) == 0.75
    assert linear(1.0, 0.0, 0.5)(0.25) == 0.5
    assert cosine(1.0, 0.0)(0.5) == pytest.approx(0.5)
    assert cosine(1.0, 0.0)(0.25) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 4))
    steps = piecewise([(0.5, 1.0), (0.1, 3.0), (0.9, 0.0)])  # in any order
    assert [steps(at) for at in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)] == pytest.approx([3, 3, 2, 1, 0.5, 0, 0])


@pytest.mark.parametrize(("before", "after"), [(0.8, 0.3), (0.3, 0.8)])
def test_two_points_at_one_progress_make_a_jump(before: float, after: float) -> None:
    jump = piecewise([(0.0, before), (0.5, before), (0.5, after), (1.0, after)])
    assert [jump(at) for at in (0.0, 0.4, 0.5, 0.5001, 0.6, 1.0)] == pytest.approx([before] * 3 + [after] * 3)


def test_target_return_stops_the_run() -> None:
    controller = TargetReturn(TargetReturnConfig(10.0))
    clock = Clock(100)
    controller.evaluated(Evaluation((9.9,), (1,)), Steering(clock))
    assert not clock.stop
    controller.evaluated(Evaluation((10.0,), (1,)), Steering(clock))
    assert clock.stop
    other = TargetReturn(TargetReturnConfig(0.0))
    other.load_state_dict(save_and_load(controller.state_dict()))
    assert other.reason == controller.reason == "an evaluation reached 10.0 (--target-return 10)"
