"""The page that leads from a rule of the control plane to its test: every test it names is there, and no section is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "behaviour.md").read_text()
MEASUREMENTS = (ROOT / "docs" / "measurements.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE + MEASUREMENTS)))
SECTIONS = ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7",
            "2.8", "2.9", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "4.1", "4.2", "4.3", "5", "6.1", "6.3", "6.4"]  # fmt: skip
HEADS = ("| § |", "| events |", "| invariant |", "| what goes wrong |", "| what comes in |", "| command |")
MANUALS_EVENTS = [
    "worker_registered", "worker_failing", "worker_failed", "worker_pruned", "assignment_queued", "task_preempted",
    "task_unschedulable", "task_timeout", "job_submitted", "job_removed", "job_cancelled", "job_terminated", "slice_ready",
    "slice_pruned", "reconcile_rpc_failed", "dispatch_updates_applied",
]  # fmt: skip


@cache
def names_in(path: str) -> frozenset[str]:
    """The test functions at the top of a file."""
    tree = ast.parse((ROOT / path).read_text())
    functions = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return frozenset(name for name in functions if name.startswith("test_"))


@pytest.mark.parametrize("named", NAMED)
def test_every_test_that_is_named_is_there(named: str) -> None:
    path, _, test = named.partition("::")
    assert (ROOT / path).exists(), path
    assert test in names_in(path)


def test_every_row_names_a_test_or_a_reason() -> None:
    body, _, absent = PAGE.partition("## Not here")
    rows = [line for line in body.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
    assert len(rows) > 100 and len(NAMED) > 150
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row), row
    for row in absent.splitlines():
        if row.startswith("| ") and not row.startswith("| § |"):
            assert all(cell.strip() for cell in row.strip("|").split("|")), row


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_has_a_row(section: str) -> None:
    assert re.search(rf"^\| {re.escape(section)} \|", PAGE, flags=re.M)


@pytest.mark.parametrize("event", MANUALS_EVENTS)
def test_every_event_of_the_manual_has_a_test_or_a_reason(event: str) -> None:
    assert f"`{event}`" in PAGE.partition("## Audit events")[2]


def written_events() -> set[str]:
    """Every audit event that the controller and its workers can write, read off the code."""
    from iris_controller.rpc.roles import ACCESS

    found = {access.action for access in ACCESS.values() if access.action}
    for path in (ROOT / "iris_controller").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            said = node.args[:1] if name in ("note", "note_often", "audit") else []
            said += [k.value for k in node.keywords if name in ("end_job", "end_tree") and k.arg == "action"]
            for value in (inner for word in said for inner in ast.walk(word)):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.add(value.value)
    return {event for event in found if re.fullmatch(r"[a-z]+(_[a-z]+)*", event)}


def test_no_event_is_missing_from_the_page() -> None:
    events = written_events()
    assert {"job_submitted", "job_cancelled", "task_exec", "worker_failed", "reconcile_rpc_failed"} <= events
    assert {event for event in events if f"`{event}`" not in PAGE.partition("## Audit events")[2]} == set()
