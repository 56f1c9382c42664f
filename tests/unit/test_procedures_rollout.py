"""A rollout: one cluster after the other, each behind its own word; the first failure ends it; killed anywhere it goes on."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris_core.procedures import journal as journals
from iris_core.procedures import lock, record, rollout_report, rollout_watch
from iris_core.procedures.approvals import Answer, Unanswered
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import Gate, Status, Suspended
from iris_core.procedures.lock import Holder
from iris_core.procedures.record import Phase
from tests.unit.procedures_world import Killed
from tests.unit.rollout_world import NEW, OLD, PROCEDURE, WATCHED, Operator, RolloutWorld

pytestmark = pytest.mark.asyncio


async def test_it_ships_one_tree_to_all_in_order_and_asks_before_each(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path, "h1", "h2", "h3"), Operator()
    outcome = await world.run(operator)
    assert (outcome.status, outcome.exit_code) == (Status.DONE, 0)
    assert outcome.state == f"h1, h2, h3 run {NEW[:12]}"
    assert operator.ids == ["tree", "h1/restart", "h1/next", "h2/restart", "h2/next", "h3/restart"]
    assert world.freezes == 1
    for cluster in world.clusters.values():
        assert cluster.shipped and cluster.free and list(cluster.jobs.values()) == [1]
        assert cluster.looks["sample"] == 2 + WATCHED, "before anything is asked, before the restart, and the watch"


async def test_the_gates_name_the_tree_and_the_cluster_and_say_what_happens(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path), Operator()
    await world.run(operator)
    tree, first, following, second = operator.asked
    assert (tree.name, tree.tier, tree.grants) == (NEW[:12], 3, ())
    said = "\n".join(tree.effects)
    assert (
        "ahead of origin/main by 1: unmerged code" in said
        and "dirty: a.py" in said
        and "no checks are configured" in said
    )
    assert (first.name, first.tier, second.name) == ("h1", 3, "h2")
    assert "watched for 5 minutes, which nothing shortens" in first.effects[-1]
    assert following.tier == 1 and not following.grants, "it allows nothing by itself"
    assert len({gate.token() for gate in operator.asked}) == 4, "no approval stands for two questions"
    (tmp_path / "other").mkdir()
    other, again = RolloutWorld(tmp_path / "other"), Operator("tree")
    other.tree = replace(world.tree, id="3" * 40)
    await other.run(again)
    assert again.asked[0].token() != tree.token(), "nor for two trees"


async def test_an_answer_to_one_rollout_is_none_to_another_of_the_same_tree_and_clusters(tmp_path: Path) -> None:
    asked = []
    for procedure in ("rollout-1", "rollout-2"):
        (tmp_path / procedure).mkdir()
        world, operator = RolloutWorld(tmp_path / procedure), Operator("h2/failed")
        world.named = False
        world["h2"].changes = {"workers_healthy": 1}
        await world.run(operator, procedure=procedure)
        asked.append({gate.id: gate for gate in operator.asked})
    first, second = asked
    assert list(first) == list(second) == ["scope", "tree", "h1/restart", "h1/next", "h2/restart", "h2/failed"]
    assert first["tree"].effects == second["tree"].effects, "what is asked is the same"
    for gate in ("scope", "tree", "h1/next", "h2/failed"):
        assert first[gate].token() != second[gate].token()
    assert first["h1/next"].evidence["verdict"]["passed"], "going on rests on the verdict"


async def test_clusters_that_nobody_named_are_asked_for_in_their_order(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path), Operator("scope")
    world.named = False
    outcome = await world.run(operator)
    assert outcome.status is Status.STOPPED and operator.ids == ["scope"]
    assert operator.asked[0].effects[0] == "1. h1 (controller=local, capacity=3 slices)"
    assert not world["h1"].looks and world.freezes == 0, "nothing was looked at before"


@pytest.mark.parametrize("gate", ["tree", "h1/restart", "h1/next", "h2/restart"])
async def test_stopping_at_any_gate_leaves_all_that_comes_after_as_it_was(tmp_path: Path, gate: str) -> None:
    world = RolloutWorld(tmp_path)
    outcome = await world.run(Operator(gate))
    assert (outcome.status, outcome.exit_code) == (Status.STOPPED, 1)
    first = gate in ("h1/next", "h2/restart")
    assert world["h1"].shipped is first and world["h1"].free
    assert world["h1"].untouched is not first
    assert world["h2"].untouched
    if first:
        assert (
            outcome.state.endswith(f"h1 runs {NEW[:12]}; h2 was left as before")
            or "nothing was changed" in outcome.state
        )


async def test_a_cluster_that_is_skipped_is_left_and_the_next_one_is_asked_for(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path), Operator(choices={"h1/restart": "skip"})
    outcome = await world.run(operator)
    assert outcome.status is Status.DONE and operator.ids == ["tree", "h1/restart", "h2/restart"]
    assert world["h1"].untouched and world["h2"].shipped
    assert outcome.state == f"h2 runs {NEW[:12]}; h1 was left as before"
    alone = Operator("h1/restart")
    await RolloutWorld(tmp_path, "h1").run(alone, procedure="rollout-2")
    assert "skip" not in alone.asked[-1].choices


async def test_every_requirement_of_every_cluster_is_looked_at_before_anything_is_asked(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path), Operator()
    world["h1"].refuse_check = "the disk has 3 MB"
    world["h2"].host.running = False
    lock.acquire(world["h2"].store, Holder("other", "bob", "tower", 1))
    outcome = await world.run(operator)
    assert outcome.status is Status.FAILED and not operator.asked
    assert outcome.state == "nothing was changed: h1: room on its disk: the disk has 3 MB"
    said = "\n".join(outcome.details)
    assert "bob on tower holds it" in said and "the controller does not serve" in said
    assert world["h1"].untouched and not world["h2"].host.effects


async def test_a_cluster_that_somebody_began_to_change_meanwhile_ends_it_and_says_who(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)

    class Late(Operator):
        async def ask(self, gate: Gate) -> Answer:
            if gate.id == "h1/restart":
                lock.acquire(world["h1"].store, Holder("other", "bob", "tower", 1))
            return await super().ask(gate)

    outcome = await world.run(Late())
    assert outcome.status is Status.FAILED and "bob on tower holds it" in outcome.state
    assert not world["h1"].host.effects and not world["h1"].free and world["h2"].untouched


async def test_the_lock_is_kept_through_the_watch_and_given_back_before_the_next_question(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    h1 = world["h1"]
    during: list[Holder | None] = []
    at_gate: list[bool] = []
    plain = h1.sample

    def seen() -> dict[str, Any]:
        during.append(lock.read(h1.store).holder)
        return plain()

    h1.sample = seen  # type: ignore[method-assign]

    class Looking(Operator):
        async def ask(self, gate: Gate) -> Answer:
            if gate.id == "h1/next":
                at_gate.append(h1.free)
            return await super().ask(gate)

    assert (await world.run(Looking())).status is Status.DONE
    assert [holder.procedure for holder in during[1:] if holder] == [PROCEDURE] * WATCHED
    assert at_gate == [True]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "workers": ({"workers_healthy": 1}, "healthy workers fell from 2 to 1"),
    "tree": ({"tree": OLD}, f"it runs {OLD[:12]} instead of {NEW[:12]}"),
    "problem": ({"problems": ["the disk is full"]}, "it says: the disk is full"),
    "store": ({"store": "down"}, "its log store does not run"),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_watch_that_fails_ends_the_rollout_and_leaves_the_next_cluster(tmp_path: Path, what: str) -> None:
    world = RolloutWorld(tmp_path)
    changes, words = BAD[what]
    world["h1"].changes = changes
    outcome = await world.run()
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 1)
    assert f"h1 runs {NEW[:12]}, and its watch failed: {words}" in outcome.state
    assert outcome.state.endswith("h2 was left as before") and "--rollback" in outcome.next
    assert world["h1"].free and world["h2"].untouched


async def test_a_failed_watch_offers_to_roll_back_behind_a_gate_of_its_own(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path), Operator(choices={"h1/failed": "roll back"})
    world["h1"].changes = BAD["workers"][0]
    outcome = await world.run(operator)
    assert operator.ids == ["tree", "h1/restart", "h1/failed", "h1/rollback/rollback"]
    offered, asked = operator.asked[2:]
    assert offered.choices == ("roll back", "stop") and not offered.grants, "no third way, and nothing is done by it"
    assert (asked.name, asked.tier) == ("h1", 3) and any("lost" in line or "after it" in line for line in asked.effects)
    assert (outcome.status, outcome.exit_code) == (Status.ROLLED_BACK, 1)
    h1 = world["h1"]
    assert (h1.host.release, h1.host.running, h1.record.phase, h1.free) == (OLD, True, Phase.ROLLED_BACK, True)
    assert world["h2"].untouched and "its watch had failed: healthy workers fell" in outcome.state


@pytest.mark.parametrize("gate", ["h1/failed", "h1/rollback/rollback"])
async def test_who_does_not_roll_back_leaves_the_new_release_and_the_lock_free(tmp_path: Path, gate: str) -> None:
    world = RolloutWorld(tmp_path)
    world["h1"].changes = BAD["workers"][0]
    outcome = await world.run(Operator(gate, choices={"h1/failed": "roll back"}))
    assert outcome.exit_code == 1 and "its watch" in outcome.state and "failed" in outcome.state
    assert world["h1"].shipped and world["h1"].free and world["h2"].untouched


async def test_one_look_that_fails_fails_the_watch_though_the_last_one_is_well(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    h1 = world["h1"]
    plain = h1.sample

    def once() -> dict[str, Any]:
        h1.refuse_sample = "connection refused" if h1.looks["sample"] == 3 else ""
        return plain()

    h1.sample = once  # type: ignore[method-assign]
    outcome = await world.run()
    assert outcome.status is Status.FAILED
    assert f"1 of {WATCHED} looks at the controller failed: connection refused" in outcome.state


async def test_a_controller_that_is_started_again_during_the_watch_fails_it(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    h1 = world["h1"]
    plain = h1.sample

    def crashing() -> dict[str, Any]:
        h1.host.boot += h1.looks["sample"] == 5
        return plain()

    h1.sample = crashing  # type: ignore[method-assign]
    assert "was started again during the watch" in (await world.run()).state


@pytest.mark.parametrize("state", ["failed", "running"])
async def test_a_smoke_job_that_does_not_succeed_fails_it(tmp_path: Path, state: str) -> None:
    world = RolloutWorld(tmp_path)
    world["h1"].smoke_state = state
    outcome = await world.run()
    ended = " after 30 minutes" if state == "running" else ""
    assert outcome.status is Status.FAILED and f"is {state}{ended}" in outcome.state


async def test_a_smoke_job_that_cannot_be_submitted_fails_it_after_the_whole_watch(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    world["h1"].refuse_submit = "nobody may submit"
    outcome = await world.run()
    assert "the smoke job could not be submitted: nobody may submit" in outcome.state
    assert world["h1"].looks["sample"] == 2 + WATCHED, "before anything is asked, before the restart, and the watch"


async def test_a_snapshot_that_cannot_be_had_ends_it_before_the_restart(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)

    class Hangs(Operator):
        async def ask(self, gate: Gate) -> Answer:
            world["h1"].refuse_sample = "it hangs"
            return await super().ask(gate)

    outcome = await world.run(Hangs())
    assert outcome.status is Status.FAILED and outcome.state.startswith("h1 was not changed: it hangs")
    assert world["h1"].untouched and world["h2"].untouched


async def test_a_release_that_does_not_come_up_is_replaced_and_ends_it(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    world["h1"].host.unhealthy.add(NEW)
    outcome = await world.run()
    assert (outcome.status, outcome.exit_code) == (Status.ROLLED_BACK, 1)
    assert world["h1"].host.release == OLD and world["h1"].free and not world["h1"].jobs and world["h2"].untouched
    assert outcome.state.endswith("h2 was left as before")


async def test_a_failure_before_anything_was_touched_says_so_and_ends_it(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    world["h1"].refuse_build = "the disk is full"
    outcome = await world.run()
    assert "nothing was changed: the disk is full" in outcome.state
    assert world["h1"].record.image == OLD and world["h1"].free and world["h2"].untouched


@pytest.mark.parametrize("how", ["well", "unhealthy", "rolled back"])
async def test_killed_at_any_event_it_goes_on_to_the_same_end_and_does_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(rollout_watch, "INTERVAL_S", 150.0)  # a kill between any two samples is like another
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the process dies here, and not the machine

    def made(number: int) -> RolloutWorld:
        folder = tmp_path / str(number)
        folder.mkdir()
        world = RolloutWorld(folder, *(("h1", "h2") if how == "well" else ("h1",)))
        world["h1"].host.unhealthy.update({NEW} if how == "unhealthy" else ())
        world["h1"].changes = BAD["workers"][0] if how == "rolled back" else {}
        return world

    def operator() -> Operator:
        return Operator(choices={"h1/failed": "roll back"})

    whole = made(-1)
    end = await whole.run(operator())
    assert end.exit_code == (how != "well")
    for number in range(2 * whole.lines):
        world = made(number)
        with pytest.raises(Killed):
            await world.run(operator(), die_at=number // 2, after=number % 2 == 1)
        outcome = await world.run(operator())
        assert (outcome.status, outcome.state) == (end.status, end.state), number
        for name, cluster in world.clusters.items():
            wanted = whole[name]
            assert cluster.free, number
            for effect in ("ended", f"start {NEW}", f"start {OLD}"):
                assert cluster.host.effects.count(effect) == wanted.host.effects.count(effect), (number, effect)
            assert cluster.host.release == wanted.host.release, number
            assert list(cluster.jobs.values()) == list(wanted.jobs.values()), number
            assert (cluster.record.phase, cluster.record.image) == (wanted.record.phase, wanted.record.image), number


async def test_a_watch_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path, "h1")
    h1, engines = world["h1"], list[Engine]()
    plain = h1.sample

    def left() -> dict[str, Any]:
        if h1.looks["sample"] == 10:
            engines[0].suspend()
        return plain()

    h1.sample = left  # type: ignore[method-assign]
    with pytest.raises(Suspended):
        await world.run(engine=engines)
    assert not h1.free, "nobody else ships anything while it is not known how it is"
    before = h1.looks["sample"]
    assert (await world.run()).status is Status.DONE
    assert h1.looks["sample"] - before == WATCHED
    assert rollout_report.facts(journals.read(world.path), "h1").watched[0]["after_s"] == 0


async def test_it_is_not_left_between_the_stop_and_the_end_of_the_restart(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path, "h1")
    h1, engines = world["h1"], list[Engine]()
    plain = h1.checkpoint

    def stopping(stop: bool, timeout_s: float) -> str:
        if stop:
            engines[0].suspend()
        return plain(stop, timeout_s)

    h1.checkpoint = stopping  # type: ignore[method-assign]
    with pytest.raises(Suspended):
        await world.run(engine=engines)
    assert h1.shipped, "a controller that is down is worse than a key that is answered late"
    assert (await world.run()).status is Status.DONE


async def test_another_account_goes_on_with_approvals_of_its_own(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)

    class Gone(Operator):
        async def ask(self, gate: Gate) -> Answer:
            if gate.id == "h1/next":
                raise Unanswered("gone")
            return await super().ask(gate)

    with pytest.raises(Unanswered):
        await world.run(Gone())
    grace = Operator()
    assert (await world.run(grace, account="grace")).status is Status.DONE
    assert grace.ids == ["h1/next", "h2/restart"]
    answers = [(r["event"], r["by"]) for r in journals.read(world.path) if r["type"] == "answered"]
    assert answers == [("tree", "ada"), ("h1/restart", "ada"), ("h1/next", "grace"), ("h2/restart", "grace")]


async def test_aborting_gives_the_lock_back_and_says_where_everything_stands(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    h1, engines = world["h1"], list[Engine]()
    plain = h1.sample

    def aborted() -> dict[str, Any]:
        if h1.looks["sample"] == 4:
            engines[0].cancel()
        return plain()

    h1.sample = aborted  # type: ignore[method-assign]
    outcome = await world.run(engine=engines)
    assert outcome.status is Status.CANCELLED and outcome.exit_code == 1
    assert (
        outcome.state == f"h1 runs {NEW[:12]}, and nobody has watched it to the end: cancelled; h2 was left as before"
    )
    assert h1.free and world["h2"].untouched


async def test_an_end_that_comes_with_the_lock_half_given_back_gives_it_back_and_says_what_was_done(
    tmp_path: Path,
) -> None:
    """Wherever else it comes, too: no end leaves a lock behind, and none calls a cluster untouched that has the new release."""

    def made(name: str) -> RolloutWorld:
        (tmp_path / name).mkdir()
        return RolloutWorld(tmp_path / name)

    whole = made("whole")
    assert (await whole.run()).status is Status.DONE
    records = journals.read(whole.path)
    events = dict.fromkeys(
        (str(r["event"]), r["type"])
        for r in records
        if r["type"] in ("intent", "gathering", "gathered", "done") and str(r["event"]).startswith("h1/")
    )
    assert ("h1/unlock", "intent") in events
    for number, (event, kind) in enumerate(events):
        world, engines = made(str(number)), list[Engine]()

        def end(record: dict[str, Any], event: str = event, kind: str = kind, engines: list[Engine] = engines) -> None:
            if (record.get("event"), record["type"]) == (event, kind):
                engines[0].cancel()

        outcome = await world.run(engine=engines, watch=end)
        assert world["h1"].free and world["h2"].free, (event, kind, outcome)
        told = journals.read(world.path)
        assert not rollout_report.held_locks(told), (event, kind)
        was_locked = ("h1/lock", "done") in {(r.get("event"), r["type"]) for r in told}
        assert rollout_report.facts(told, "h1").unlocked == was_locked, (event, kind)
        if world["h1"].host.release[:12] == NEW[:12]:
            assert "h1 was left as before" not in outcome.state and "h1 was not changed" not in outcome.state, (
                event,
                kind,
                outcome,
            )


async def test_the_checks_run_on_an_export_of_the_tree_and_a_failure_ends_it(tmp_path: Path) -> None:
    from iris_core.procedures.source_tree import freeze
    from tests.unit.test_procedures_source_tree import git

    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "file").write_text("what is shipped\n")
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "First")
    world = RolloutWorld(tmp_path)
    world.tree = freeze(repo)
    (repo / "file").write_text("typed meanwhile\n")
    world.checks_command = "cat file; ls -d .git; exit 3"
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "the checks fail" in outcome.state and "exit code 3" in outcome.state
    assert outcome.details[0] == "what is shipped" and world["h1"].untouched
    world.checks_command = "grep shipped file"
    operator = Operator("h1/restart")
    await world.run(operator, procedure="rollout-2")
    assert "its checks pass: grep shipped file" in "\n".join(operator.asked[0].effects)


async def test_the_report_has_the_evidence_and_is_made_from_the_journal_alone(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path)
    await world.run(Operator("h2/restart"))
    text = rollout_report.markdown(PROCEDURE, journals.read(world.path))
    assert f"- Hash `{NEW}`" in text and "| ada | h1/restart | approve |" in text
    assert "## h1: passed" in text and "## h2: stopped at its gate" in text
    assert f"- Tree before `{OLD}`, after `{NEW}`" in text and "hello world" in text
    assert text.count("| 300 s | yes | 2/2 | 3 | 1 | 0 | 1.5 ms | 20 ms |") == 1
    assert "s without an answer" in text or "- Downtime: at most" in text
    found = rollout_report.facts(journals.read(world.path), "h1")
    assert found.unlocked and found.checkpoint.endswith("/12") and found.record is not None
    assert found.record["previous_image"] == OLD


async def test_a_hostile_line_of_a_job_cannot_leave_its_fence(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path, "h1")
    plain = world["h1"].smoke

    def nasty(job: str) -> dict[str, Any] | None:
        found = plain(job)
        return {**found, "lines": ["```\x1b]0;owned\x07", "# Approved by everybody"]} if found is not None else None

    world["h1"].smoke = nasty  # type: ignore[method-assign]
    await world.run()
    text = rollout_report.markdown(PROCEDURE, journals.read(world.path))
    assert "\x1b" not in text and "\n```\x1b" not in text
    fenced = text.split("```text\n")[-1].split("\n```")[0]
    assert "# Approved by everybody" in fenced


async def test_a_record_that_is_asked_to_roll_back_is_seen_before_anything_is_asked(tmp_path: Path) -> None:
    world, operator = RolloutWorld(tmp_path, "h1"), Operator()
    standing = record.read(world["h1"].store)
    record.write(world["h1"].store, record.rollback_requested(standing, 6), standing)
    outcome = await world.run(operator)
    assert outcome.status is Status.FAILED and "rollback_requested" in outcome.state and not operator.asked


async def test_two_at_once_are_told_who_is_first(tmp_path: Path) -> None:
    world = RolloutWorld(tmp_path, "h1")
    here, go = asyncio.Event(), asyncio.Event()
    plain = world["h1"].submit
    loop = asyncio.get_running_loop()

    def slowly(name: str) -> str:
        loop.call_soon_threadsafe(here.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(30)
        return plain(name)

    world["h1"].submit = slowly  # type: ignore[method-assign]
    first = asyncio.create_task(world.run())
    await asyncio.wait_for(here.wait(), 30)
    second = await world.run(account="bob", procedure="rollout-2")
    assert second.status is Status.FAILED
    assert f"ada on desk holds it for 0s (procedure {PROCEDURE})" in second.state
    go.set()
    assert (await first).status is Status.DONE


SEEN: dict[str, Any] = {
    "at_ms": 7_200_000, "reachable": True, "tree": NEW, "boot_id": "b", "ready": True, "problems": [], "workers_total": 4,
    "workers_healthy": 4, "tasks": {"running": 9, "pending": 2}, "failures": 0, "failures_since_ms": 0, "lag_ms": 1.0, "store": "serving",
    "store_lag_ms": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workers_total": 5}, "workers that are not healthy: 1 of 5"),
        ({"tasks": {"running": 8, "pending": 2}}, "running tasks: 8, before it 9"),
        ({"tasks": {"running": 9, "pending": 3}}, "pending tasks: 3, before it 2"),
        ({"failures": 240}, "attempts that fail in a minute: 2.0, before it 0.0"),
        ({"lag_ms": 250.0}, "its loop is late by 250 ms"),
        ({"store_lag_ms": 120_000}, "lines wait 2m for its log store"),
    ],
)
async def test_what_a_person_should_know_is_a_note_and_fails_nothing(changes: dict[str, Any], words: str) -> None:
    before = {**SEEN, "tree": OLD}
    after = [{**SEEN, **changes}]
    assert rollout_watch.concerns(before, after, NEW) == []
    assert rollout_watch.notes(before, after) == [words]
    assert rollout_watch.notes(before, [SEEN]) == []


async def test_a_problem_of_before_is_a_note_and_a_new_one_a_concern() -> None:
    before = {**SEEN, "tree": OLD, "problems": ["the disk is full"]}
    after = [{**SEEN, "problems": ["the disk is full", "no checkpoint for 3h"]}]
    assert rollout_watch.concerns(before, after, NEW) == ["it says: no checkpoint for 3h"]
    assert rollout_watch.notes(before, after) == ["it says, as before: the disk is full"]
    assert rollout_watch.concerns(before, [], NEW) == ["nothing was seen of it"]
