"""Routing and planning as pure functions: what must hold for any fleet, and the rules of control-plane §3.3–3.6 one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.autoscaling import backoff
from iris_controller.autoscaling.demand import Demand, demand_of
from iris_controller.autoscaling.groups import BLOCKED, Availability, GroupState
from iris_controller.autoscaling.matching import FULL, NO_GANG, NO_GROUP, TIER, TOO_SMALL, capacity, fits
from iris_controller.autoscaling.planning import IdleSlice, aim, plan
from iris_controller.autoscaling.rates import Rate
from iris_controller.autoscaling.routing import route
from iris_controller.autoscaling.verdict import job_feasibility, verdicts
from iris_controller.state.slices import ScalingGroup
from iris_core.config.scale_groups import ScaleGroup
from iris_core.model.constraints import Mode, parse_constraint
from iris_core.model.resources import Device, Resources
from tests.unit.autoscaler_world import group, state, tpu_group
from tests.unit.kernel_world import GB, World, job_spec


def demand(count: int = 1, cpu: float = 1, job_id: str = "/u/j", **values: Any) -> Demand:
    given_: dict[str, Any] = {
        "resources": Resources(int(cpu * 1000), values.pop("memory", 0), 0, values.pop("device", None))
    }
    return Demand(job_id, count, **(given_ | values))


def where(*texts: str, mode: Mode = Mode.REQUIRED) -> tuple[Any, ...]:
    return tuple(parse_constraint(text, mode=mode) for text in texts)


# What holds for any fleet -----------------------------------------------------------------------------------------

groups = st.builds(
    lambda n, vms, cpu, most, buffer, pool, tier, tpu, priority: group(
        f"g{n}",
        num_vms=vms,
        cpu_millicores=cpu * 1000,
        max_slices=max(most, buffer),
        buffer_slices=buffer,
        quota_pool=pool,
        allocation_tier=tier,
        priority=priority,
        device=Device("tpu", "v5litepod-16", 4) if tpu else None,
    ),
    st.integers(0, 99), st.integers(1, 4), st.integers(1, 8), st.integers(0, 6), st.integers(0, 3),
    st.sampled_from(["", "p", "q"]), st.integers(0, 2), st.booleans(), st.integers(0, 3),
)  # fmt: skip


@st.composite
def states(draw: st.DrawFn) -> list[GroupState]:
    found = {}
    for one in draw(st.lists(groups, max_size=4)):
        ready = draw(st.integers(0, one.max_slices))
        rest = one.max_slices - ready
        requesting = draw(st.integers(0, rest))
        booting = draw(st.integers(0, rest - requesting))
        found[one.name] = GroupState(
            one,
            requesting=requesting,
            booting=booting,
            ready=ready,
            busy=draw(st.integers(0, ready)),
            going=draw(st.integers(0, 2)),
            quota_left_ms=draw(st.sampled_from([0, 0, 0, 5000])),
            quota_reason="no quota",
            backoff_left_ms=draw(st.sampled_from([0, 0, 0, 5000])),
            troubled=draw(st.booleans()),
            up_left=draw(st.sampled_from([None, 0, 1, 3])),
            down_left=draw(st.sampled_from([None, 0, 1])),
        )
    return list(found.values())


@st.composite
def demands(draw: st.DrawFn) -> list[Demand]:
    found = []
    for n in range(draw(st.integers(0, 6))):
        tpu = draw(st.booleans())
        found.append(
            demand(
                draw(st.integers(1, 30)),
                draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 9.0])),
                f"/u/j{n}",
                device=Device("tpu", "v5litepod-16", 4) if tpu else None,
                group_by="tpu-name" if tpu and draw(st.booleans()) else "",
            )
        )
    return found


@given(demands(), states(), st.sampled_from([None, 0, 2, 50]))
@settings(max_examples=100, deadline=None)
def test_no_plan_exceeds_a_maximum_a_rate_or_a_block(
    wanted: list[Demand], fleet: list[GroupState], left: int | None
) -> None:
    found = plan(wanted, fleet, creates_left=left)
    by_name = {s.name: s for s in fleet}
    assert len({launch.group for launch in found.launches}) == len(found.launches)
    for launch in found.launches:
        s = by_name[launch.group]
        assert 0 < launch.count <= max(0, s.group.max_slices - s.live - s.going)
        assert s.availability not in BLOCKED
        assert s.up_left is None or launch.count <= s.up_left
        assert not s.troubled or launch.count + s.requesting <= 1
    assert left is None or sum(launch.count for launch in found.launches) <= left
    lowest: dict[str, int] = {}
    for s in fleet:
        if s.group.quota_pool and s.availability in BLOCKED:
            lowest[s.group.quota_pool] = min(lowest.get(s.group.quota_pool, 99), s.group.allocation_tier)
    for launch in found.launches:
        g = by_name[launch.group].group
        assert g.allocation_tier < lowest.get(g.quota_pool, 99) or not g.quota_pool


@given(demands(), states())
@settings(max_examples=100, deadline=None)
def test_demand_is_served_once_and_fits_what_was_opened(wanted: list[Demand], fleet: list[GroupState]) -> None:
    found = route(wanted, fleet)
    by_name = {s.name: s for s in fleet}
    for entry in wanted:
        routed = sum(r.count for r in found.routed if r.demand is entry)
        unmet = sum(u.count for u in found.unmet if u.demand is entry)
        assert routed + unmet == entry.count, "every task goes to one place or is said to go nowhere"
        if entry.gang:
            assert routed in (0, entry.count)
    for name, s in by_name.items():
        opened = found.required.get(name, 0)
        assert opened <= s.in_flight + s.room
        assert found.launches.get(name, 0) <= s.room
        mine = [r for r in found.routed if r.group == name]
        machines = opened * s.group.num_vms
        cpu, _, devices = capacity(demand(), s)
        assert sum(r.demand.resources.cpu_millicores * r.count for r in mine) <= machines * cpu
        whole = sum(-(-r.count // fits(r.demand, capacity(r.demand, s))) for r in mine if r.demand.resources.device)
        assert whole <= machines and (devices or not whole)
        if found.launches.get(name):
            assert opened - found.launches[name] == s.in_flight, (
                "what is on its way is filled before anything is opened"
            )


@given(demands(), states(), st.data())
@settings(max_examples=80, deadline=None)
def test_only_idle_slices_beyond_the_aim_are_given_up_longest_first(
    wanted: list[Demand], fleet: list[GroupState], data: st.DataObject
) -> None:
    idle = [
        IdleSlice(f"{s.name}-{n}", s.name, data.draw(st.integers(0, 1_200_000)))
        for s in fleet
        for n in range(s.ready - s.busy)
    ]
    found = plan(wanted, fleet, idle)
    by_id = {item.slice_id: item for item in idle}
    for s in fleet:
        gone = [by_id[r.slice_id] for r in found.retires if r.group == s.name]
        assert s.ready - len(gone) >= min(s.ready, aim(s, found.routing))
        assert s.down_left is None or len(gone) <= s.down_left
        assert all(item.idle_ms >= 600_000 for item in gone)
        kept = [item for item in idle if item.group == s.name and item not in gone]
        if gone:
            assert all(k.idle_ms <= min(g.idle_ms for g in gone) for k in kept)


@given(demands(), states())
@settings(max_examples=100, deadline=None)
def test_a_verdict_that_says_never_is_never_routed_to(wanted: list[Demand], fleet: list[GroupState]) -> None:
    found = route(wanted, fleet)
    for entry in wanted:
        said = {v.group: v for v in verdicts(entry, fleet)}
        assert set(said) == {s.name for s in fleet}
        for r in found.routed:
            assert r.demand is not entry or said[r.group].can_ever
        if job_feasibility(entry, fleet):
            assert not any(r.demand is entry for r in found.routed)


# The rules one by one ---------------------------------------------------------------------------------------------


def test_groups_are_asked_by_wishes_then_priority() -> None:
    fleet = [
        state(group("dear", priority=1, zone="us-a")),
        state(group("cheap", priority=50, zone="us-a")),
        state(group("near", priority=99, zone="eu-a")),
    ]
    assert [r.group for r in route([demand()], fleet).routed] == ["dear"]
    wish = demand(preferred=where("zone=eu-a", mode=Mode.PREFERRED))
    assert [r.group for r in route([wish], fleet).routed] == ["near"]


def test_demand_sticks_to_what_is_on_its_way() -> None:
    fleet = [state(group("first", priority=1)), state(group("second", priority=2), booting=1)]
    found = route([demand(4)], fleet)
    assert [(r.group, r.count) for r in found.routed] == [("second", 4)] and not found.launches


def test_a_blocked_group_keeps_what_it_already_asked_for() -> None:
    fleet = [state(group("a"), booting=1, backoff_left_ms=5000), state(group("b", priority=200))]
    found = route([demand(4)], fleet)
    assert [r.group for r in found.routed] == ["a"] and not found.launches


def test_cpu_work_is_packed_and_an_accelerator_task_takes_its_machine() -> None:
    fleet = [state(group(max_slices=10))]
    assert plan([demand(10, 1), demand(2, 2, "/u/k")], fleet).launches[0].count == 4
    device = Device("tpu", "v5litepod-16", 4)
    tpus = [state(tpu_group(max_slices=10))]
    assert plan([demand(9, 0.1, device=device)], tpus).launches[0].count == 3, "nine machines are three slices of four"


def test_several_small_gpu_tasks_share_a_machine() -> None:
    fleet = [state(group(device=Device("gpu", "h100", 8), max_slices=10))]
    assert plan([demand(8, 0.1, device=Device("gpu", "h100", 1))], fleet).launches[0].count == 1


def test_memory_counts_and_a_machine_of_unknown_size_takes_all_until_one_was_seen() -> None:
    unknown = state(group(cpu_millicores=None, memory_bytes=None, max_slices=10))
    assert plan([demand(100, 4)], [unknown]).launches[0].count == 1
    known = replace(unknown, seen=Resources(4000, 16 * GB))
    assert plan([demand(8, 4)], [known]).launches[0].count == 8
    assert plan([demand(8, 0, memory=8 * GB)], [known]).launches[0].count == 4


def test_a_gang_needs_a_slice_of_its_size() -> None:
    device = Device("tpu", "v5litepod-16", 4)
    fleet = [state(tpu_group("four", 4)), state(tpu_group("eight", 8))]
    gang = demand(4, device=device, group_by="tpu-name")
    assert plan([gang], fleet).launches[0].group == "four"
    two = route([replace(gang, job_id="/u/a"), gang], [state(tpu_group("four", 4), booting=1)])
    assert (two.required, two.launches) == ({"four": 2}, {"four": 1})
    rest = route([replace(gang, count=3, size=4)], fleet)
    assert [r.group for r in rest.routed] == ["four"], "what is left of a gang goes where the whole went"
    three = route([replace(gang, count=3)], fleet)
    assert [u.code for u in three.unmet] == [NO_GANG]
    assert "four has 4 machines in a slice" in three.unmet[0].reason
    other = route([replace(gang, group_by="rack")], fleet)
    assert other.unmet[0].code == NO_GANG and "no attribute rack" in other.unmet[0].reason
    for count, said in ((3, "the gang has 3 tasks"), (1, "the gang has 1 task")):
        assert {v.reason.rpartition(", ")[2] for v in verdicts(replace(gang, count=count), fleet)} == {said}


def test_cpu_work_takes_accelerators_only_where_nothing_else_could_ever_host_it() -> None:
    tpu, cpu = state(tpu_group("tpu", priority=1)), state(group(max_slices=0))
    assert not route([demand()], [tpu, cpu]).routed, "the CPU group is full, and that is what the work waits for"
    big = demand(1, 3, memory=16 * GB)
    small = state(group("small", memory_bytes=GB))
    assert [r.group for r in route([big], [tpu, small]).routed] == ["tpu"]


def test_unmet_demand_says_which_dimension_fails() -> None:
    fleet = [state(group(zone="us-central1-a", region="us-central1"))]
    misspelt = route([demand(required=where("zone=us-centra1-a"))], fleet).unmet[0]
    assert misspelt.code == NO_GROUP
    assert misspelt.reason == "no scale group has zone=us-centra1-a; did you mean 'us-central1-a'?"
    far = route([demand(required=where("region=asia"))], fleet).unmet[0]
    assert far.reason == "no scale group has region=asia; regions are us-central1"
    both = [*fleet, state(group("eu", zone="eu-a", preemptible=True))]
    together = route([demand(required=where("zone=us-central1-a", "preemptible=true"))], both).unmet[0]
    assert together.reason == "no scale group has zone=us-central1-a preemptible=true together"
    large = route([demand(1, 64)], fleet).unmet[0]
    assert large.code == TOO_SMALL
    assert large.reason == "asks for 64 cores; a machine of cpu has 4 cores, 16GB"
    assert route([demand()], []).unmet[0].reason == "no scale groups are configured"


def test_no_capacity_names_each_group_and_why() -> None:
    fleet = [
        state(group("full", max_slices=1), ready=1, busy=1),
        state(group("poor"), quota_left_ms=60_000, quota_reason="CPUS"),
        state(group("hurt"), backoff_left_ms=20_000, failure_reason="stock out"),
    ]
    found = route([demand()], fleet).unmet[0]
    assert found.code == FULL
    assert found.reason == (
        "full: at its maximum of 1 slice; hurt: backing off for 20s after a failure: stock out;"
        " poor: quota exceeded, tried again in 1m: CPUS"
    )


def test_a_block_holds_for_the_tiers_of_its_pool_from_there_on() -> None:
    def tier(name: str, number: int, **values: Any) -> GroupState:
        return state(group(name, quota_pool="p", allocation_tier=number, attributes={"size": name}), **values)

    fleet = [tier("small", 0), tier("middle", 1, quota_left_ms=9000, quota_reason="TPUS"), tier("large", 2)]
    small = route([demand(required=where("size=small"))], fleet)
    assert [r.group for r in small.routed] == ["small"]
    large = route([demand(required=where("size=large"))], fleet)
    assert large.unmet[0].code == TIER
    assert large.unmet[0].reason == (
        "quota pool p is blocked from tier 1 on: middle is quota exceeded, tried again in 9s: TPUS"
    )
    own = route([demand(required=where("size=middle"))], fleet)
    assert own.unmet[0].code == FULL, "its own block is its own reason"
    assert verdicts(demand(required=where("size=large")), fleet)[2].word == "tier_blocked"
    assert plan([], fleet).decisions["large"].word == "blocked"


def test_availability_has_one_precedence() -> None:
    busy = state(group(max_slices=1), requesting=1, quota_left_ms=1, backoff_left_ms=1)
    assert busy.availability is Availability.QUOTA_EXCEEDED
    busy = replace(busy, quota_left_ms=0)
    assert busy.availability is Availability.BACKOFF
    busy = replace(busy, backoff_left_ms=0)
    assert busy.availability is Availability.REQUESTING
    busy = replace(busy, requesting=0, booting=1)
    assert busy.availability is Availability.COOLDOWN
    busy = replace(busy, booting=0, ready=1)
    assert busy.availability is Availability.AT_MAX_SLICES
    assert replace(busy, ready=0).availability is Availability.AVAILABLE


def test_a_more_important_entry_is_served_first() -> None:
    fleet = [state(group(max_slices=1))]
    found = route([demand(1, 4, "/u/first"), demand(1, 4, "/u/second")], fleet)
    assert [r.demand.job_id for r in found.routed] == ["/u/first"]
    assert found.unmet[0].reason == "cpu: all its slices are taken by more important work"


def test_the_demand_is_by_band_and_leaves_out_what_waits_for_a_setup_slot() -> None:
    from iris_core.model.bands import PriorityBand

    w = World()
    w.submit("/u/batch", tasks=3, spec=job_spec(band=PriorityBand.BATCH))
    w.submit("/u/slot", tasks=2)
    w.submit("/u/prod", tasks=9_000, spec=job_spec(band=PriorityBand.PRODUCTION))
    found = demand_of(w.model, [("/u/batch", False), ("/u/slot", True), ("/u/prod", False), ("/u/gone", False)])
    assert [(d.job_id, d.count) for d in found] == [("/u/prod", 9_000), ("/u/batch", 3)]


def test_a_group_that_is_no_longer_configured_gives_up_what_is_idle() -> None:
    old = state(ScaleGroup("old", max_slices=0), ready=2, busy=1)
    found = plan([demand()], [old], [IdleSlice("old-1", "old", 700_000)])
    assert [r.slice_id for r in found.retires] == ["old-1"] and not found.launches


# Failures and rates -----------------------------------------------------------------------------------------------


def test_pauses_double_to_ten_minutes_and_blocks_to_forty() -> None:
    assert [backoff.pause_ms(n) // 1000 for n in range(1, 9)] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert [backoff.block_ms(n) // 60_000 for n in range(1, 6)] == [5, 10, 20, 40, 40]
    assert backoff.pause_ms(10**6) == 600_000 and backoff.block_ms(10**6) == 40 * 60_000


def test_what_clears_a_quota_keeps_the_failures_and_the_other_way_round() -> None:
    row = backoff.quota_exceeded(backoff.failed(ScalingGroup("g"), "stock out", 1000), "TPUS", 2000)
    taken = backoff.accepted(row, 3000)
    assert (taken.quota_reason, taken.quota_blocks, taken.consecutive_failures) == ("", 0, 1)
    ready = backoff.became_ready(row, 3000)
    assert (ready.consecutive_failures, ready.backoff_until_ms, ready.quota_reason) == (0, 0, "TPUS")


@given(st.integers(1, 120), st.lists(st.floats(0, 5, allow_nan=False), max_size=60))
@settings(deadline=None)
def test_a_rate_lets_no_more_than_a_minutes_worth_through(per_minute: int, pauses: list[float]) -> None:
    rate, now, taken = Rate(per_minute, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        left = rate.left(now)
        assert left is not None
        rate.take(left)
        taken += left
    assert taken <= per_minute * (1 + now / 60) + 1


def test_a_rate_of_nought_is_no_limit() -> None:
    rate = Rate(0, 0.0)
    rate.take(10**6)
    assert rate.left(0.0) is None


def test_a_full_group_says_that_work_waits_for_it() -> None:
    full = state(tpu_group(max_slices=1), ready=1, busy=1)
    gang = demand(
        count=4, group_by="tpu-name", size=4, resources=Resources(1000, 0, 0, Device("tpu", "v5litepod-16", 4))
    )
    found = plan([gang], [full, state()])
    assert found.routing.unserved == {"tpu": 1}
    decision = found.decisions["tpu"]
    assert decision.word == "blocked"
    assert decision.reason == "at its maximum of 1 slice, and work waits that would fill 1 more"
    assert found.decisions["cpu"].word == "idle"


def test_what_found_no_room_counts_in_slices_also_when_the_shape_was_refused_before() -> None:
    full = state(group(max_slices=1), ready=1, busy=1)
    found = plan([demand(9), demand(1, 1, "/u/second")], [full])
    assert found.routing.unserved == {"cpu": 3 + 1}


def test_a_group_whose_last_slices_come_up_does_not_say_that_it_is_full() -> None:
    coming = state(group(max_slices=2), ready=1, busy=1, booting=1)
    assert coming.availability == "cooldown"
    assert coming.standing == "1 on the way up, which makes its maximum of 2 slices"
