"""States and bands: numbers on the wire, sets, words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model import states
from iris_core.model.bands import BANDS, PriorityBand, band_label, parse_band
from iris_core.model.errors import ModelError
from iris_core.model.states import JobState, TaskState, WorkerHealth


def test_numbers_are_those_of_the_database() -> None:
    assert {state.name: state.value for state in TaskState} == {
        "UNSPECIFIED": 0, "PENDING": 1, "BUILDING": 2, "RUNNING": 3, "SUCCEEDED": 4, "FAILED": 5, "KILLED": 6,
        "WORKER_FAILED": 7, "UNSCHEDULABLE": 8, "ASSIGNED": 9, "PREEMPTED": 10, "COSCHED_FAILED": 11, "MISSING": 12,
    }  # fmt: skip
    for job_state in JobState:
        assert TaskState[job_state.name].value == job_state.value, "jobs and tasks share the numbers they share"
    assert [band.value for band in BANDS] == [1, 2, 3, 4]
    assert WorkerHealth("degraded") is WorkerHealth.DEGRADED


def test_every_stored_task_state_is_either_terminal_or_not() -> None:
    stored = set(TaskState) - {TaskState.UNSPECIFIED, TaskState.MISSING}
    assert stored == states.TERMINAL | states.NON_TERMINAL
    assert not states.TERMINAL & states.NON_TERMINAL
    assert states.EXECUTING < states.ACTIVE < states.NON_TERMINAL
    assert states.DISPATCHED < states.ACTIVE
    assert states.FAILURE < states.TERMINAL
    assert {JobState.WORKER_FAILED} == states.JOB_TERMINAL - states.CANCEL_GUARD
    assert {JobState.SUCCEEDED} == states.JOB_TERMINAL - states.JOB_ERROR


@pytest.mark.parametrize("state", [state for state in TaskState if state])
def test_task_state_words_round_trip(state: TaskState) -> None:
    word = states.label(state)
    assert word == word.lower()
    for text in (word, word.upper(), f" {word} ", word.replace("_", "-"), f"TASK_STATE_{state.name}"):
        assert states.parse_task_state(text) is state
    assert states.task_label(int(state)) == word


@pytest.mark.parametrize("state", [state for state in JobState if state])
def test_job_state_words_round_trip(state: JobState) -> None:
    assert states.parse_job_state(states.label(state)) is state
    assert states.parse_job_state(f"job_state_{state.name}") is state
    assert states.job_label(int(state)) == states.label(state)


def test_unknown_words_get_a_suggestion_and_unknown_numbers_show() -> None:
    with pytest.raises(ModelError, match="did you mean 'running'"):
        states.parse_job_state("runing")
    with pytest.raises(ModelError, match="one of pending"):
        states.parse_job_state("assigned")
    with pytest.raises(ModelError):
        states.parse_task_state("unspecified")
    assert states.task_label(99) == states.job_label(99) == band_label(99) == "99"


@given(st.text(max_size=60))
def test_parsers_raise_only_model_errors(text: str) -> None:
    for parse in (states.parse_task_state, states.parse_job_state, parse_band):
        try:
            parse(text)
        except ModelError as error:
            assert str(error).isprintable()


def test_rank_orders_by_importance_not_by_number() -> None:
    assert sorted(PriorityBand, key=lambda band: -band.rank()) == [*BANDS, PriorityBand.INHERIT]
    assert PriorityBand.SYSTEM.outranks(PriorityBand.PRODUCTION)
    assert not PriorityBand.BATCH.outranks(PriorityBand.BATCH)
    assert not PriorityBand.INHERIT.outranks(PriorityBand.BATCH)


def test_inherit_takes_the_parents_band_or_the_default() -> None:
    assert PriorityBand.INHERIT.resolve(None) is PriorityBand.INTERACTIVE
    assert PriorityBand.INHERIT.resolve(PriorityBand.BATCH) is PriorityBand.BATCH
    assert PriorityBand.INHERIT.resolve(PriorityBand.INHERIT) is PriorityBand.INTERACTIVE
    assert PriorityBand.SYSTEM.resolve(PriorityBand.BATCH) is PriorityBand.SYSTEM


def test_band_words() -> None:
    for band in BANDS:
        assert parse_band(band.label) is parse_band(f"PRIORITY_BAND_{band.name}") is band
        assert band_label(band) == band.label
    assert parse_band("inherit", allow_inherit=True) is PriorityBand.INHERIT
    with pytest.raises(ModelError):
        parse_band("inherit")
    with pytest.raises(ModelError, match="did you mean 'batch'"):
        parse_band("bach")
