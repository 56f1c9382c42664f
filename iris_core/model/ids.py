"""Names of jobs, tasks and attempts, and the grammar that admits them.

An id is its text: ``/user/job[/child…]`` is a job, the same with a last
component of digits (and at least three components) is a task, and
``<task>:<n>`` is one attempt of it (control-plane §1.1). The texts are the
keys of every table and every wire message, so there is exactly one text per
object: indexes and attempt numbers carry no leading zeros.

Construct an id with ``parse`` (checks everything, raises ``ModelError``) or
derive it (``job.child("eval")``, ``job.task(3)``, ``task.attempt(0)``). Calling the class itself
trusts the text: that is for rows that were checked when they were stored.

This module never makes up an id: attempt uids and default job names need
randomness or a clock and belong to those who have one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from iris_core.model.errors import ModelError, shown

SYSTEM_USER: Final = "system"
"""The owner segment kept for the daemons' own targets."""

MAX_COMPONENT: Final = 128
"""Longest component, in characters (ASCII, so also in bytes)."""

MAX_ID_BYTES: Final = 512
"""Longest job id, in bytes. A task index and an attempt number come on top, so
that every task of a valid job has a valid id."""

MAX_NUMBER: Final = 2**31 - 1
"""Highest task index and attempt number (they are int32 on the wire)."""

_COMPONENT = r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,127}"
_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_JOB = rf"/{_COMPONENT}/{_COMPONENT}(?:/(?![0-9]+(?:/|:|\Z)){_COMPONENT})*"

_COMPONENT_RE = re.compile(_COMPONENT)
_JOB_RE = re.compile(_JOB)
_TASK_RE = re.compile(rf"({_JOB})/({_NUMBER})")
_ATTEMPT_RE = re.compile(rf"(({_JOB})/({_NUMBER})):({_NUMBER})")
_BAD_CHARACTER_RE = re.compile(r"[^A-Za-z0-9._@+-]")
_LOGIN_RE = re.compile(r"[^A-Za-z0-9._@+-]|\A[^A-Za-z0-9_]")
_SYSTEM_PREFIX = f"/{SYSTEM_USER}/"


@dataclass(frozen=True, slots=True)
class JobId:
    """A job, ``/user/name`` or ``/user/name/child…``. Case is kept."""

    text: str

    @classmethod
    def parse(cls, text: str, *, allow_system: bool = False) -> JobId:
        """Check ``text`` against the grammar.

        Raises:
            ModelError: not a job id; the message names the fault, and a task
                or attempt id is recognised as what it is.
        """
        if (
            _JOB_RE.fullmatch(text)
            and len(text) <= MAX_ID_BYTES
            and (allow_system or not text.startswith(_SYSTEM_PREFIX))
        ):
            return cls(text)
        raise _explain(text, "job", allow_system)

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def user(self) -> str:
        """The owner: the first component."""
        return self.text[1 : self.text.index("/", 1)]

    @property
    def name(self) -> str:
        """The last component."""
        return self.text[self.text.rindex("/") + 1 :]

    @property
    def depth(self) -> int:
        """Job components under the user: 1 for a root job, 2 for its child."""
        return self.text.count("/") - 1

    @property
    def parent(self) -> JobId | None:
        """The job one level up, ``None`` for a root job."""
        return JobId(self.text[: self.text.rindex("/")]) if self.depth > 1 else None

    @property
    def root(self) -> JobId:
        """The root job of the tree: the first two components."""
        end = self.text.find("/", self.text.index("/", 1) + 1)
        return self if end < 0 else JobId(self.text[:end])

    def child(self, name: str) -> JobId:
        """Return the child job called ``name``.

        Raises:
            ModelError: the name is no component, is all digits (it would read
                as a task) or makes the id too long.
        """
        check_component(name, what="job name", field="name")
        if name.isdigit():
            raise ModelError(
                f"the child job name {shown(name)} is all digits, which would name a task",
                field="name",
                hint="add a letter",
            )
        text = f"{self.text}/{name}"
        if len(text) > MAX_ID_BYTES:
            raise _too_long(text, "job")
        return JobId(text)

    def task(self, index: int) -> TaskId:
        """Return the task at ``index`` (0 ≤ index ≤ ``MAX_NUMBER``)."""
        _check_number(index, "task index")
        return TaskId(f"{self.text}/{index}")

    def is_ancestor_of(self, other: JobId | TaskId | AttemptId) -> bool:
        """Whether ``other`` lies below this job. A job is not its own ancestor.

        Compares whole components: ``/u/a`` is no ancestor of ``/u/ab``.
        """
        return other.text.startswith(self.text + "/")


@dataclass(frozen=True, slots=True)
class TaskId:
    """One task of a job: ``<job>/<index>``."""

    text: str

    @classmethod
    def parse(cls, text: str, *, allow_system: bool = False) -> TaskId:
        """Check ``text`` against the grammar.

        Raises:
            ModelError: not a task id, or an attempt id (which belongs to the
                attempt commands).
        """
        match = _TASK_RE.fullmatch(text)
        if match is not None and _fits(match[1], allow_system) and int(match[2]) <= MAX_NUMBER:
            return cls(text)
        raise _explain(text, "task", allow_system)

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def job(self) -> JobId:
        """The job this is a task of."""
        return JobId(self.text[: self.text.rindex("/")])

    @property
    def index(self) -> int:
        """Position in the job, from 0."""
        return int(self.text[self.text.rindex("/") + 1 :])

    @property
    def sort_key(self) -> tuple[str, int]:
        """Orders tasks by job, then by number (``/2`` before ``/10``)."""
        job, _, index = self.text.rpartition("/")
        return job, int(index)

    def attempt(self, number: int) -> AttemptId:
        """Return attempt ``number`` (0 ≤ number ≤ ``MAX_NUMBER``) of this task."""
        _check_number(number, "attempt number")
        return AttemptId(f"{self.text}:{number}")


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One attempt of a task: ``<task>:<number>``."""

    text: str

    @classmethod
    def parse(cls, text: str, *, allow_system: bool = False) -> AttemptId:
        """Check ``text`` against the grammar.

        Raises:
            ModelError: not an attempt id, or a task without an attempt number.
        """
        match = _ATTEMPT_RE.fullmatch(text)
        if (
            match is not None
            and _fits(match[2], allow_system)
            and int(match[3]) <= MAX_NUMBER
            and int(match[4]) <= MAX_NUMBER
        ):
            return cls(text)
        raise _explain(text, "attempt", allow_system)

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def task(self) -> TaskId:
        """The task this is an attempt of."""
        return TaskId(self.text[: self.text.rindex(":")])

    @property
    def number(self) -> int:
        """Attempt number, from 0."""
        return int(self.text[self.text.rindex(":") + 1 :])


def parse_target(text: str, *, allow_system: bool = False) -> JobId | TaskId | AttemptId:
    """Parse whatever ``text`` names: a job, a task, or an attempt.

    Raises:
        ModelError: it names none of them.
    """
    if ":" in text:
        return AttemptId.parse(text, allow_system=allow_system)
    if text.count("/") > 2 and _all_digits(text[text.rindex("/") + 1 :]):
        return TaskId.parse(text, allow_system=allow_system)
    return JobId.parse(text, allow_system=allow_system)


def check_component(text: str, *, what: str = "name", field: str = "name") -> str:
    """Return ``text`` if it is one valid id component (also the rule for worker ids).

    Raises:
        ModelError: empty, too long, or a character outside ``A-Za-z0-9._@+-``;
            ``position`` is that character's offset.
    """
    if _COMPONENT_RE.fullmatch(text):
        return text
    raise _explain_component(text, what, field, 0)


def check_owner(text: str) -> str:
    """Return ``text`` if it may own jobs: a component that is not the reserved ``system``."""
    check_component(text, what="user", field="user")
    if text == SYSTEM_USER:
        raise _reserved()
    return text


def owner_from_login(login: str) -> str:
    """Turn a login name into an owner segment: other characters become ``_``.

    Raises:
        ModelError: empty, too long, or the reserved ``system``.
    """
    return check_owner(_LOGIN_RE.sub("_", login))


def _fits(job: str, allow_system: bool) -> bool:
    return len(job) <= MAX_ID_BYTES and (allow_system or not job.startswith(_SYSTEM_PREFIX))


def _all_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _check_number(number: int, what: str) -> None:
    if not 0 <= number <= MAX_NUMBER:
        raise ModelError(f"{what} {number} is outside 0..{MAX_NUMBER}")


def _reserved() -> ModelError:
    return ModelError(f"the user {SYSTEM_USER!r} is reserved", field="user", hint="it owns no jobs: name another user")


def _too_long(text: str, what: str) -> ModelError:
    return ModelError(f"the {what} id {shown(text)} is longer than {MAX_ID_BYTES} bytes", field="id")


_SHAPES: Final = {"job": "/user/job", "task": "/user/job/0", "attempt": "/user/job/0:1"}


def _explain(text: str, wanted: str, allow_system: bool) -> ModelError:
    """Say in one line why ``text`` is not a ``wanted`` id. Slow path: errors only."""

    def fault(problem: str, position: int | None = None, hint: str = "") -> ModelError:
        return ModelError(
            f"{shown(text)} is not {'an' if wanted == 'attempt' else 'a'} {wanted} id: {problem}",
            field="id",
            position=position,
            hint=hint or f"write it as {_SHAPES[wanted]}",
        )

    if not text:
        return ModelError(f"the {wanted} id is empty", field="id", hint=f"write it as {_SHAPES[wanted]}")
    if not text.startswith("/"):
        return fault("it does not start with '/'", 0)
    body, colon, number = text.rpartition(":") if ":" in text else (text, "", "")
    components = body[1:].split("/")
    offset = 1
    for component in components:
        if not _COMPONENT_RE.fullmatch(component):
            error = _explain_component(component, "component", "id", offset)
            return fault(error.message, error.position)
        offset += len(component) + 1
    if len(components) < 2:
        return fault("it names only a user" if components[0] else "it is empty")
    if components[0] == SYSTEM_USER and not allow_system:
        return _reserved()
    for component in components[2:-1]:
        if _all_digits(component):
            return fault(f"{component!r} is all digits and so a task, nothing can lie below it")
    last = components[-1]
    is_task = len(components) > 2 and _all_digits(last)
    job_length = len(body) - (len(last) + 1 if is_task else 0)
    if job_length > MAX_ID_BYTES:
        return _too_long(text, wanted)
    if is_task:
        error_text = _number_fault(last, "task index")
        if error_text:
            return fault(error_text, len(body) - len(last))
    if colon:
        if not is_task:
            return fault("an attempt number may only follow a task", len(body))
        if not _all_digits(number):
            return fault(f"the attempt number {shown(number)} is not a number", len(body) + 1)
        error_text = _number_fault(number, "attempt number")
        if error_text:
            return fault(error_text, len(body) + 1)
        return fault("it names an attempt", len(body), hint="use the attempt command, or drop ':N'")
    if is_task:
        if wanted == "attempt":
            return fault("the attempt number is missing", hint=f"write it as {body[:120]}:0")
        return fault("it names a task", len(body) - len(last), hint="use the task command")
    return fault("it names a job", hint=f"name a task of it, such as {body[:120]}/0")


def _number_fault(digits: str, what: str) -> str:
    if len(digits) > 1 and digits.startswith("0"):
        return f"the {what} {shown(digits)} has leading zeros"
    if len(digits) > 10 or int(digits) > MAX_NUMBER:
        return f"the {what} {shown(digits)} is above {MAX_NUMBER}"
    return ""


def _explain_component(text: str, what: str, field: str, offset: int) -> ModelError:
    if not text:
        return ModelError(f"a {what} is empty", field=field, position=offset)
    bad = _BAD_CHARACTER_RE.search(text)
    if bad is not None:
        return ModelError(
            f"the {what} {shown(text)} has {bad[0]!r} at position {offset + bad.start()}",
            field=field,
            position=offset + bad.start(),
            hint="use letters, digits and ._@+-",
        )
    if len(text) > MAX_COMPONENT:
        return ModelError(
            f"the {what} {shown(text)} is longer than {MAX_COMPONENT} characters",
            field=field,
            position=offset + MAX_COMPONENT,
        )
    return ModelError(
        f"the {what} {shown(text)} starts with {text[0]!r}",
        field=field,
        position=offset,
        hint="start it with a letter, a digit or _",
    )
