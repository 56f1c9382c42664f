"""The id grammar: what it admits, that it admits one text per object, and how it says no."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.errors import ModelError
from iris_core.model.ids import (
    MAX_COMPONENT,
    MAX_ID_BYTES,
    MAX_NUMBER,
    AttemptId,
    JobId,
    TaskId,
    check_component,
    check_owner,
    owner_from_login,
    parse_target,
)

FIRST = "abcXYZ0189_"
COMPONENTS = st.builds(str.__add__, st.sampled_from(FIRST), st.text(alphabet=f"{FIRST}.@+-", max_size=12))
USERS = COMPONENTS.filter(lambda text: text != "system")
CHILD_NAMES = COMPONENTS.filter(lambda text: not text.isdigit())
NUMBERS = st.integers(0, MAX_NUMBER)


@st.composite
def job_ids(draw: st.DrawFn) -> JobId:
    job = JobId.parse(f"/{draw(USERS)}/{draw(COMPONENTS)}")
    for name in draw(st.lists(CHILD_NAMES, max_size=4)):
        job = job.child(name)
    return job


def is_valid_job(text: str) -> bool:
    """The grammar again, written as prose reads, to compare with."""
    if not text.startswith("/") or len(text.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
        return False
    parts = text[1:].split("/")
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@+-")
    return (
        len(parts) >= 2
        and parts[0] != "system"
        and all(0 < len(part) <= 128 and set(part) <= allowed and part[0] not in ".@+-" for part in parts)
        and not any(set(part) <= set("0123456789") for part in parts[2:])
    )


@given(job_ids())
def test_job_text_round_trips(job: JobId) -> None:
    assert str(job) == job.text
    assert JobId.parse(str(job)) == job
    assert parse_target(str(job)) == job
    assert hash(JobId.parse(job.text)) == hash(job)


@given(job_ids(), NUMBERS, NUMBERS)
def test_task_and_attempt_round_trip(job: JobId, index: int, number: int) -> None:
    task = job.task(index)
    attempt = task.attempt(number)
    assert TaskId.parse(task.text) == task == parse_target(task.text)
    assert AttemptId.parse(attempt.text) == attempt == parse_target(attempt.text)
    assert (task.job, task.index) == (job, index)
    assert (attempt.task, attempt.number) == (task, number)


@given(job_ids(), st.lists(CHILD_NAMES, min_size=1, max_size=3))
def test_family_relations(job: JobId, names: list[str]) -> None:
    descendant = job
    for name in names:
        parent = descendant
        descendant = descendant.child(name)
        assert descendant.parent == parent
        assert descendant.name == name
    assert descendant.depth == job.depth + len(names)
    assert descendant.root == job.root
    assert descendant.user == job.user
    assert job.root.parent is None
    assert job.is_ancestor_of(descendant)
    assert job.is_ancestor_of(descendant.task(0).attempt(0))
    assert not descendant.is_ancestor_of(job)
    assert not job.is_ancestor_of(job)


def test_ancestry_compares_components_not_characters() -> None:
    assert not JobId.parse("/u/train").is_ancestor_of(JobId.parse("/u/train-2"))
    assert not JobId.parse("/u/train").is_ancestor_of(JobId.parse("/u/train-2/eval"))


@given(
    st.one_of(
        st.text(max_size=40),
        st.text(alphabet="/:09a.system \n\x00\ud800é", max_size=30),
        st.lists(st.sampled_from(["u", "0", "12", "007", "a.b", "", "system", "-x", "x" * 129]), max_size=8).map(
            lambda parts: "/" + "/".join(parts)
        ),
    )
)
def test_parsers_agree_with_the_grammar_and_raise_only_model_errors(text: str) -> None:
    try:
        assert JobId.parse(text).text == text
        accepted = True
    except ModelError as error:
        accepted = False
        assert error.field in ("id", "user")
        assert "\n" not in str(error) and str(error).isprintable()
        assert error.position is None or 0 <= error.position <= len(text)
    assert accepted == is_valid_job(text)
    kinds = 0
    for parse in (JobId.parse, TaskId.parse, AttemptId.parse):
        try:
            parse(text)
            kinds += 1
        except ModelError:
            pass
    assert kinds <= 1, "one text names one kind of object"
    try:
        parse_target(text)
        assert kinds == 1
    except ModelError:
        assert kinds == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("u/j", "does not start with '/'"),
        ("/u", "only a user"),
        ("/u//j", "component is empty"),
        ("/u/..", "starts with '.'"),
        ("/u/a b", "' ' at position 4"),
        ("/u/\x1b[2J", r"'\x1b' at position 3"),
        ("/u/j\n", r"'\n' at position 4"),
        ("/u/" + "x" * (MAX_COMPONENT + 1), "longer than 128"),
        ("/u" + "/abcdefgh" * 60, "longer than 512"),
        ("x" * 10_000, "10000 characters"),
        ("/system/x", "reserved"),
        ("/u/j/3", "names a task"),
        ("/u/j/3:1", "names an attempt"),
        ("/u/j:1", "may only follow a task"),
        ("/u/j/3/x", "all digits"),
        ("/u/j/007", "leading zeros"),
        ("/u/j/99999999999", "above 2147483647"),
        ("/u/٣/j", "'٣'"),
    ],
)
def test_job_refusals_say_why(text: str, why: str) -> None:
    with pytest.raises(ModelError, match=re.escape(why)) as caught:
        JobId.parse(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/u/j", "names a job"),
        ("/u/j/0:1", "use the attempt command"),
        ("/u/j/0:x", "is not a number"),
        ("/u/j/01", "leading zeros"),
        ("/u/j/2147483648", "above"),
    ],
)
def test_task_refusals_say_why(text: str, why: str) -> None:
    with pytest.raises(ModelError, match=re.escape(why)):
        TaskId.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/u/j/0", "number is missing"),
        ("/u/j/0:", "is not a number"),
        ("/u/j/0:01", "leading zeros"),
        ("/u/j", "a job"),
    ],
)
def test_attempt_refusals_say_why(text: str, why: str) -> None:
    with pytest.raises(ModelError, match=re.escape(why)):
        AttemptId.parse(text)


def test_digit_names_are_jobs_only_at_the_root() -> None:
    root = JobId.parse("/u/7")
    assert root.task(0).text == "/u/7/0"
    with pytest.raises(ModelError, match="all digits"):
        root.child("7")
    assert isinstance(parse_target("/u/7/8"), TaskId)


def test_the_limits_are_exact() -> None:
    longest = "/u/" + "/".join(["j" * 128, "k" * 128, "l" * 128, "m" * 122])
    assert len(longest) == MAX_ID_BYTES
    job = JobId.parse(longest)
    attempt = job.task(MAX_NUMBER).attempt(MAX_NUMBER)
    assert AttemptId.parse(attempt.text) == attempt, "every task of a valid job has a valid id"
    with pytest.raises(ModelError, match="longer than 512"):
        JobId.parse(longest + "m")
    with pytest.raises(ModelError, match="longer than 512"):
        job.child("n")
    with pytest.raises(ModelError):
        job.task(-1)
    with pytest.raises(ModelError):
        job.task(0).attempt(MAX_NUMBER + 1)


def test_system_targets_are_admitted_on_request() -> None:
    assert JobId.parse("/system/controller", allow_system=True).user == "system"
    assert JobId.parse("/systems/x").user == "systems"
    with pytest.raises(ModelError, match="reserved"):
        parse_target("/system/worker/0:1")


def test_no_user_is_called_system() -> None:
    for taken in (
        lambda: check_owner("system"),
        lambda: owner_from_login("system"),
        lambda: JobId.parse("/system/x"),
        lambda: TaskId.parse("/system/x/0"),
    ):
        with pytest.raises(ModelError, match="the user 'system' is reserved"):
            taken()
    assert check_owner("systems") == "systems"


def test_tasks_sort_by_number() -> None:
    job = JobId.parse("/u/j")
    tasks = [job.task(index) for index in (10, 2, 1)]
    assert [task.index for task in sorted(tasks, key=lambda task: task.sort_key)] == [1, 2, 10]


@given(st.text(min_size=1, max_size=60))
def test_any_short_login_becomes_an_owner(login: str) -> None:
    try:
        owner = owner_from_login(login)
    except ModelError:
        assert login == "system"
        return
    assert check_owner(owner) == owner
    assert len(owner) == len(login)
    assert JobId.parse(f"/{owner}/j").user == owner


def test_login_characters_are_replaced_one_by_one() -> None:
    assert owner_from_login("Jo Doe") == "Jo_Doe"
    assert owner_from_login(".hidden") == "_hidden"
    assert owner_from_login("jo.doe@example.org") == "jo.doe@example.org"
    for bad in ("", "x" * 129, "system"):
        with pytest.raises(ModelError):
            owner_from_login(bad)


@given(st.text(max_size=140))
def test_components_are_checked(text: str) -> None:
    try:
        assert check_component(text, what="worker id") == text
        assert is_valid_job(f"/{text}/x") or text == "system"
    except ModelError as error:
        assert error.message.isprintable()
        assert not is_valid_job(f"/{text}/x") or "/" in text
