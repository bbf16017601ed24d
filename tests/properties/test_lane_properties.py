"""Packing clients into lanes: everyone runs once, and the busy lanes are always the first ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.worlds.engines.lanes import LanePlan, pack

JOBS = st.lists(st.integers(1, 40), max_size=30)
LANES = st.integers(1, 12)


@given(JOBS, LANES)
def test_every_job_runs_once_for_as_long_as_it_takes(jobs: list[int], lanes: int) -> None:
    plan = pack(jobs, lanes)
    assert sorted(slot.job for slot in plan.slots) == list(range(len(jobs)))
    assert all(slot.end - slot.start == jobs[slot.job] for slot in plan.slots)


@given(JOBS, LANES)
def test_a_lane_runs_one_job_at_a_time_without_gaps(jobs: list[int], lanes: int) -> None:
    plan = pack(jobs, lanes)
    assert len(plan.loads) == min(lanes, len(jobs))
    for lane, load in enumerate(plan.loads):
        spans = sorted((slot.start, slot.end) for slot in plan.slots if slot.lane == lane)
        edges = [0, *(end for _, end in spans)]
        assert [start for start, _ in spans] == edges[:-1]
        assert edges[-1] == load


@given(JOBS, LANES)
def test_busy_lanes_are_a_prefix_at_every_tick(jobs: list[int], lanes: int) -> None:
    plan = pack(jobs, lanes)
    assert list(plan.loads) == sorted(plan.loads, reverse=True)
    covered = 0
    for start, end, width in plan.segments:
        assert start == covered < end
        covered = end
        running = {slot.lane for slot in plan.slots if slot.start <= start and slot.end >= end}
        assert running == set(range(width))
        assert not any(start < edge < end for slot in plan.slots for edge in (slot.start, slot.end))
    assert covered == max(plan.loads, default=0)


@given(JOBS, LANES)
def test_no_plan_is_longer_than_the_bound_for_longest_first(jobs: list[int], lanes: int) -> None:
    """Graham: at most 4/3 of the optimum, which is at least the mean load and the longest job."""
    plan = pack(jobs, lanes)
    least = max(max(jobs, default=0), -(-sum(jobs) // lanes))
    assert max(plan.loads, default=0) <= 4 / 3 * least + max(jobs, default=0) / 3 + 1


@given(JOBS, LANES)
def test_the_plan_is_a_function_of_the_jobs(jobs: list[int], lanes: int) -> None:
    assert pack(jobs, lanes) == pack(list(jobs), lanes)


def test_no_jobs_are_an_empty_plan() -> None:
    assert pack([], 4) == LanePlan((), ())
    assert pack([], 4).segments == []
