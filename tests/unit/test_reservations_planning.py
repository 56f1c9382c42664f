"""Chips that move between slice sizes, as pure functions: what must hold for any pool (control-plane §2.7, §3.4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.autoscaling.demand import Demand, claim_of
from iris_controller.autoscaling.groups import GroupState
from iris_controller.autoscaling.planning import Plan, plan
from iris_controller.autoscaling.reservations import SHORT, HeldSlice, Pool, cost, fewest
from iris_controller.autoscaling.verdict import verdicts
from iris_controller.scheduling.preemption import Claim
from iris_controller.state.records import Job
from iris_core.model.bands import BANDS, PriorityBand
from iris_core.model.resources import Device, Resources
from tests.unit.autoscaler_world import tpu_group
from tests.unit.kernel_world import World, job_spec

HOSTS = (1, 2, 4, 8)
GROUPS = {
    hosts: tpu_group(f"v{hosts * 4}", hosts, max_slices=50, quota_pool="p", reserved=True, scale_up_rate_limit=0)
    for hosts in HOSTS
}
B, N, P, S = PriorityBand.BATCH, PriorityBand.INTERACTIVE, PriorityBand.PRODUCTION, PriorityBand.SYSTEM


def gang(job_id: str, hosts: int, band: PriorityBand, **values: object) -> Demand:
    asked = Resources(1000, 0, 0, Device("tpu", f"v5litepod-{hosts * 4}", 4))
    claim = Claim(band, band, "")
    return replace(Demand(job_id, hosts, asked, (), (), "tpu-name", hosts, band, claim), **values)  # type: ignore[arg-type]


def some_job() -> Job:
    world = World()
    world.submit("/v/tenant", spec=job_spec(band=B))
    return world.job("/v/tenant")


TENANT = some_job()


def held(slice_id: str, hosts: int, band: PriorityBand | None, value: int = 1) -> HeldSlice:
    """A slice with work of that band; None = it stands idle."""
    if band is None:
        return HeldSlice(slice_id, f"v{hosts * 4}", "p", hosts * 4, 0)
    return HeldSlice(slice_id, f"v{hosts * 4}", "p", hosts * 4, band.rank(), value, (TENANT,))


def fleet(pool: Pool) -> list[GroupState]:
    return [GroupState(group, pool=pool) for group in GROUPS.values()]


def decide(demands: list[Demand], pool: Pool, slices: list[HeldSlice]) -> Plan:
    return plan(demands, fleet(pool), held=slices)


def launched(found: Plan) -> int:
    return sum(GROUPS[int(launch.group[1:]) // 4].chips * launch.count for launch in found.launches)


def gone(found: Plan) -> list[HeldSlice]:
    return [item for way in found.routing.making_way for item in way.slices]


slices_ = st.lists(
    st.tuples(st.sampled_from(HOSTS), st.sampled_from([None, B, N, P, S]), st.integers(1, 5)), max_size=7
).map(lambda rows: [held(f"s{n}", *row) for n, row in enumerate(rows)])
demands_ = st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(BANDS)), max_size=5).map(
    lambda rows: [
        gang(f"/u/j{n}", hosts, band) for n, (hosts, band) in enumerate(sorted(rows, key=lambda row: -row[1].rank()))
    ]
)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, list[HeldSlice]]:
    slices = draw(slices_)
    draining, other, free = (4 * draw(st.integers(0, n)) for n in (4, 2, 8))
    used = sum(item.chips for item in slices) + draining + other
    return Pool("p", used + free, used, draining), slices


@given(slices_.map(lambda s: [i for i in s if i.rank < 4]), st.integers(1, 130))
@settings(max_examples=150, deadline=None)
def test_the_fewest_of_the_lowest_bands_go_and_the_cheapest_of_them(slices: list[HeldSlice], chips: int) -> None:
    sets = [c for n in range(1, len(slices) + 1) for c in combinations(slices, n) if sum(i.chips for i in c) >= chips]
    found = fewest(slices, chips)
    assert bool(found) == bool(sets)
    if sets:
        assert sum(item.chips for item in found) >= chips
        assert cost(found) == min(cost(each) for each in sets)
        assert len({item.slice_id for item in found}) == len(found)


@given(demands_, pools())
@settings(max_examples=200, deadline=None)
def test_no_plan_gives_more_chips_than_are_free_nor_takes_an_equal_or_higher_band(
    demands: list[Demand], given_: tuple[Pool, list[HeldSlice]]
) -> None:
    pool, slices = given_
    found = decide(demands, pool, slices)
    assert launched(found) <= pool.free
    assert len({item.slice_id for item in gone(found)}) == len(gone(found)), "one slice goes once"
    for way in found.routing.making_way:
        assert way.demand.band is not None
        assert way.slices and all(item.rank < way.demand.band.rank() for item in way.slices)
        assert all(item.rank or item.group != way.group for item in way.slices), "an idle slice for another like it"


def naive(demands: list[Demand], free: int) -> tuple[Counter[str], dict[str, PriorityBand]]:
    """What is launched, by group, and the bands of the jobs that found no chips: read from the rules, one gang after another."""
    made: Counter[str] = Counter()
    short: dict[str, PriorityBand] = {}
    for demand in demands:
        assert demand.band is not None
        if all(not band.outranks(demand.band) for band in short.values()) and free >= demand.count * 4:
            free -= demand.count * 4
            made[f"v{demand.count * 4}"] += 1
        else:
            short[demand.job_id] = demand.band
    return made, short


@given(demands_, pools())
@settings(max_examples=200, deadline=None)
def test_chips_are_given_by_band_as_a_recount_says_where_nobody_can_go(
    demands: list[Demand], given_: tuple[Pool, list[HeldSlice]]
) -> None:
    pool = replace(given_[0], draining=0)
    found = decide(demands, pool, [])
    made, short = naive(demands, pool.free)
    assert Counter({launch.group: launch.count for launch in found.launches}) == made
    assert {entry.demand.job_id: entry.demand.band for entry in found.routing.unmet} == short
    assert not found.routing.making_way


@given(demands_, pools())
@settings(max_examples=200, deadline=None)
def test_all_that_it_takes_goes_or_nothing_and_not_one_slice_too_many(
    demands: list[Demand], given_: tuple[Pool, list[HeldSlice]]
) -> None:
    pool, slices = given_
    found = decide(demands, pool, slices)
    ways = {way.demand.job_id: way.slices for way in found.routing.making_way}
    back = pool.free - launched(found) + pool.draining
    for entry in found.routing.unmet:
        going = ways.get(entry.demand.job_id, ())
        needed = GROUPS[entry.demand.count].chips
        back += sum(item.chips for item in going)
        for spared in going:
            assert back - spared.chips < needed, "one went that was not needed"
        assert back >= needed or not going, "not enough went"
        if back >= needed:
            back -= needed


@given(demands_, pools(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_nobody_goes_twice_for_the_same_work_and_what_was_made_room_for_is_made(
    demands: list[Demand], given_: tuple[Pool, list[HeldSlice]], random: object
) -> None:
    """Whatever the order in which the victims are gone, and with their work back in the queue."""
    pool = replace(given_[0], draining=0)
    wanted = {f"v{demand.count * 4}" for demand in demands}
    slices = [item for item in given_[1] if item.rank or item.group not in wanted]  # its work would be on it
    first = decide(demands, pool, slices)
    victims = gone(first)
    waiting = list(first.routing.making_way)
    if not victims:
        return
    rest = [item for item in slices if item not in victims]
    evicted = [gang(f"/v/{item.slice_id}", item.chips // 4, BANDS[4 - item.rank]) for item in victims if item.rank]
    made = {entry.demand.job_id for entry in first.routing.routed}
    order = list(victims)
    random.shuffle(order)  # type: ignore[attr-defined]
    used = pool.held + launched(first)
    for left in range(len(order), -1, -1):
        still = [d for d in [*demands, *evicted] if d.job_id not in made]
        still.sort(key=lambda d: -d.band.rank() if d.band is not None else 0)
        top = waiting[0].demand.band
        still = [d for d in still if d.band is top or (d.band is not None and top is not None and top.outranks(d.band))]
        now = Pool("p", pool.chips, used, sum(item.chips for item in order[:left]))
        found = decide(still, now, rest)
        assert not [way for way in found.routing.making_way if way.demand.job_id in {w.demand.job_id for w in waiting}]
        used += launched(found)
        made |= {entry.demand.job_id for entry in found.routing.routed}
        if left:
            used -= order[left - 1].chips
    assert {way.demand.job_id for way in waiting} <= made


# One by one -------------------------------------------------------------------------------------------------------


def test_what_is_short_is_said_with_its_numbers_everywhere() -> None:
    pool = Pool("p", 64, 48)
    found = decide([gang("/u/j", 8, P)], pool, [])
    said = "pool p: 16 of 64 chips free, 32 needed"
    assert [(entry.code, entry.reason) for entry in found.routing.unmet] == [(SHORT, f"v32: {said}")]
    assert (found.decisions["v32"].word, found.decisions["v32"].reason) == ("blocked", said)
    by_group = {v.group: v for v in verdicts(gang("/u/j", 8, P), fleet(pool))}
    assert (by_group["v32"].word, by_group["v32"].reason, by_group["v32"].can_ever) == (SHORT, said, True)
    assert {v.group: v.word for v in verdicts(gang("/u/j", 4, P), fleet(pool))}["v16"] == "available"


def test_what_is_free_waits_for_the_more_important_and_that_is_said() -> None:
    found = decide([gang("/u/big", 8, P), gang("/u/small", 2, B)], Pool("p", 64, 48), [])
    assert not found.launches
    assert "16 of 64 chips free and kept for more important work, 8 needed" in found.routing.unmet[1].reason


def test_chips_on_their_way_back_are_waited_for() -> None:
    slices = [held("a", 4, B), held("b", 4, B)]
    assert not gone(decide([gang("/u/j", 8, P)], Pool("p", 64, 64, 32), slices))
    assert len(gone(decide([gang("/u/j", 8, P)], Pool("p", 64, 64, 16), slices))) == 1
    assert len(gone(decide([gang("/u/j", 8, P)], Pool("p", 64, 48, 0), slices))) == 1
    assert not gone(decide([gang("/u/j", 8, P)], Pool("p", 80, 80, 0), slices[:1])), "one alone would go in vain"


def test_a_slice_that_is_coming_up_is_waited_for() -> None:
    states = [replace(s, booting=int(s.name == "v32")) for s in fleet(Pool("p", 64, 64))]
    found = plan([gang("/u/j", 8, P)], states, held=[held("a", 8, B)])
    assert not found.routing.making_way and not found.routing.unmet


def test_batch_work_evicts_nobody_but_takes_what_stands_idle() -> None:
    pool = Pool("p", 16, 16)
    assert not gone(decide([gang("/u/j", 4, B)], pool, [held("a", 2, B), held("b", 2, B)]))
    assert len(gone(decide([gang("/u/j", 4, B)], pool, [held("a", 2, None), held("b", 2, None)]))) == 2


def test_a_blocked_group_has_nobody_go_but_free_chips_are_kept_for_it() -> None:
    pool = Pool("p", 32, 16)
    states = [
        replace(
            s, backoff_left_ms=5000 if s.name == "v16" else 0, group=replace(s.group, allocation_tier=s.name == "v16")
        )
        for s in fleet(pool)
    ]
    found = plan([gang("/u/j", 4, P), gang("/u/low", 2, B)], states, held=[held("a", 4, B)])
    assert not found.routing.making_way and not found.launches


def test_no_more_go_than_the_group_may_have_slices() -> None:
    pool = Pool("p", 64, 64)
    states = [replace(s, group=replace(s.group, max_slices=1)) for s in fleet(pool)]
    slices = [held(f"s{n}", 4, B) for n in range(4)]
    found = plan([gang("/u/a", 4, P), gang("/u/b", 4, P)], states, held=slices)
    assert len(gone(found)) == 1


def test_a_probe_has_nobody_go() -> None:
    assert not gone(decide([gang("/u/j", 4, P, claim=None, probe=True)], Pool("p", 16, 16), [held("a", 4, B)]))


def test_a_buffer_takes_only_what_nobody_waits_for() -> None:
    pool = Pool("p", 64, 48)
    states = [replace(s, group=replace(s.group, buffer_slices=int(s.name == "v4"))) for s in fleet(pool)]
    assert [(launch.group, launch.count) for launch in plan([], states).launches] == [("v4", 1)]
    found = plan([gang("/u/j", 8, B)], states)
    assert not found.launches and found.decisions["v4"].word == "blocked"


def test_solo_work_has_as_many_go_as_it_fills() -> None:
    asked = gang("/u/j", 1, P, count=3, group_by="", size=0)
    found = decide([asked], Pool("p", 64, 64), [held(f"s{n}", 1, B) for n in range(5)])
    assert len(gone(found)) == 3 and {way.group for way in found.routing.making_way} == {"v4"}


def test_nobody_goes_for_a_descendant_or_for_more_work_of_the_same_user() -> None:
    world = World()
    world.submit("/u/parent", spec=job_spec(band=N))
    world.submit("/u/parent/child", spec=job_spec(band=P))
    world.submit("/u/own", spec=job_spec(band=N))
    parent, child, own = (world.job(name) for name in ("/u/parent", "/u/parent/child", "/u/own"))
    pool = Pool("p", 16, 16)
    asked = gang("/u/parent/child", 4, P, claim=claim_of(child, P))
    assert not gone(decide([asked], pool, [replace(held("a", 4, B), jobs=(parent,))]))
    assert gone(decide([asked], pool, [replace(held("a", 4, B), jobs=(own,))]))
    mine = gang("/u/parent", 4, N, claim=claim_of(parent, N))
    assert not gone(decide([mine], pool, [replace(held("a", 4, B), jobs=(own,))]))
