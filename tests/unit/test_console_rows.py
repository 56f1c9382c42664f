"""The row store: order, filter, marks and identity through everything that can happen to rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.live.rows import Changes, Row, RowStore

KINDS = ("job", "task")


def row(
    name: str, value: int = 0, *, kind: str = "job", parent: str = "", natural: Any = 0, section: int = 0
) -> Row[int]:
    return Row(name, kind, value, parent, natural, section)


def filled(*rows: Row[int]) -> RowStore[int]:
    store: RowStore[int] = RowStore(KINDS)
    store.apply(Changes(list(rows)))
    store.reorder()
    return store


def test_natural_order_then_section_then_kind() -> None:
    store = filled(row("b", natural=2), row("a", natural=3), row("old", natural=1, section=1), row("c", natural=1))
    assert store.order == ["c", "b", "a", "old"]
    store.apply(Changes([row("a/t", kind="task", parent="a"), row("a/j", kind="job", parent="a", natural=9)]))
    store.expand("a")
    store.reorder()
    assert store.order == ["c", "b", "a", "a/j", "a/t", "old"]
    assert [store.rows[name].depth for name in ("a", "a/j", "a/t")] == [0, 1, 1]


def test_a_value_change_alone_does_not_move_rows() -> None:
    store = filled(row("a", 1), row("b", 2))
    store.set_sort(lambda item: item.value)
    store.reorder()
    changed = store.apply(Changes([row("a", 9)]))
    assert changed.changed == {"a"}
    assert changed.dirty
    assert store.order == ["a", "b"]
    store.reorder()
    assert store.order == ["b", "a"]


def test_sorting_reverses_within_kinds_and_sections() -> None:
    store = filled(row("a", 1), row("b", 2), row("z", 5, section=1))
    store.set_sort(lambda item: item.value, reverse=True)
    store.reorder()
    assert store.order == ["b", "a", "z"]


def test_a_match_below_shows_the_rows_above_it_as_context() -> None:
    store = filled(row("a"), row("a/x", parent="a"), row("b"))
    store.set_filter(lambda item: item.id == "a/x")
    store.reorder()
    assert store.order == ["a", "a/x"]
    assert (store.rows["a"].context, store.rows["a/x"].context) == (True, False)
    assert (store.counts().matched, store.counts().total) == (1, 3)


def test_rows_that_follow_are_shown_with_the_row_above() -> None:
    store = filled(row("a"), row("a/0", kind="task", parent="a"), row("b"), row("b/0", kind="task", parent="b"))
    store.expand("a")
    store.expand("b")
    store.set_filter(lambda item: None if item.kind == "task" else item.id == "a")
    store.reorder()
    assert store.order == ["a", "a/0"]


def test_the_row_under_the_cursor_stays_until_the_cursor_leaves() -> None:
    store = filled(row("a"), row("b"))
    store.hold("a")
    store.apply(Changes(removed=["a"]))
    store.reorder()
    assert store.order == ["a", "b"]
    assert store.rows["a"].gone
    store.hold("b")
    assert store.dirty
    store.reorder()
    assert store.order == ["b"]
    assert store.get("a") is None


def test_a_held_row_keeps_the_removed_rows_above_it() -> None:
    store = filled(row("a"), row("a/0", kind="task", parent="a"))
    store.expand("a")
    store.hold("a/0")
    store.apply(Changes(removed=["a"]))
    store.reorder()
    assert store.order == ["a", "a/0"]


def test_a_row_that_comes_back_is_not_gone() -> None:
    store = filled(row("a", 1))
    store.hold("a")
    store.apply(Changes(removed=["a"]))
    store.apply(Changes([row("a", 2)]))
    assert not store.rows["a"].gone
    assert store.counts().total == 1


def test_marks_freeze_the_order_and_count_what_happens() -> None:
    store = filled(row("a", natural=1), row("b", natural=2))
    store.mark("b")
    store.apply(Changes([row("0", natural=0)]))
    assert not store.reorder()
    assert (store.order, store.pending) == (["a", "b"], 1)
    assert store.reorder(force=True)
    assert (store.order, store.pending) == (["0", "a", "b"], 0)
    store.clear_marks()
    assert not store.frozen


def test_marks_that_the_filter_hides_are_counted() -> None:
    store = filled(row("a"), row("b"))
    store.mark("a")
    store.set_filter(lambda item: item.id == "b")
    store.reorder(force=True)
    assert store.hidden_marks() == 1
    assert store.marks == {"a"}


def test_a_gate_freezes_the_order_until_it_is_closed() -> None:
    store = filled(row("a"))
    store.freeze("gate")
    store.apply(Changes([row("b")], removed=["a"]))
    assert not store.reorder()
    assert store.order == ["a"]
    store.thaw("gate")
    assert store.reorder()
    assert store.order == ["b"]


def test_a_child_whose_parent_is_unknown_is_a_root() -> None:
    store = filled(row("a/x", parent="a"))
    assert store.order == ["a/x"]
    store.apply(Changes([row("a")]))
    store.reorder()
    assert store.order == ["a"]


def test_visible_changes_are_the_lines_of_the_window() -> None:
    store = filled(*(row(f"r{n:02}", natural=n) for n in range(50)))
    assert store.visible_changes({"r03", "r12", "r40"}, 10, 20) == [12]


NAMES = st.sampled_from([f"r{n}" for n in range(8)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("drop"), NAMES, st.just(0)),
        st.tuples(st.just("sort"), st.just(""), st.integers(0, 1)),
        st.tuples(st.just("filter"), st.just(""), st.integers(0, 9)),
        st.tuples(st.just("mark"), NAMES, st.just(0)),
        st.tuples(st.just("reorder"), st.just(""), st.integers(0, 1)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_selection_and_marks_are_ids_whatever_happens(steps: list[tuple[str, str, int]]) -> None:
    """Against a plain dictionary: the order is always the matching rows once each, sorted, and held and marked ids stay themselves."""
    store: RowStore[int] = RowStore(("job",))
    oracle: dict[str, int] = {}
    held = ""
    limit = 0
    for what, name, number in steps:
        if what == "put":
            store.apply(Changes([row(name, number)]))
            oracle[name] = number
        elif what == "drop":
            store.apply(Changes(removed=[name]))
            oracle.pop(name, None)
        elif what == "sort":
            store.set_sort(lambda item: item.value, reverse=bool(number))
        elif what == "filter":
            limit = number
            store.set_filter(None if not number else lambda item, least=number: item.value >= least)  # type: ignore[misc]
        elif what == "mark":
            before = name in store.marks
            assert store.mark(name) is (not before and name in store.rows)
        else:
            was_frozen = store.frozen
            done = store.reorder(force=bool(number))
            assert done is (bool(number) or not was_frozen)
            if done:
                shown = [item for item in store.order if not store.rows[item].gone]
                assert set(shown) | {held} >= {item for item, value in oracle.items() if value >= limit}
                assert all(oracle[item] >= limit or item == held for item in shown)
                assert len(set(store.order)) == len(store.order)
            held = store.order[0] if store.order else ""
            store.hold(held)
        assert store.counts().total == len(oracle)
        assert all(item in store.rows for item in store.order)
        assert store.marks <= set(store.rows)
        assert not held or held in store.rows
        for item, value in oracle.items():
            assert store.rows[item].value == value


def test_counts_belong_to_the_filter_only_when_an_order_was_computed_for_it() -> None:
    store = filled(row("a"), row("b"))
    assert store.answered
    earlier = store.plan()
    store.set_filter(lambda item: item.id == "b")
    assert not store.answered
    store.adopt(earlier.order())
    assert not store.answered, "an order that was on its way answers no later filter"
    store.reorder()
    assert store.answered and store.counts().matched == 1


def test_the_row_under_the_cursor_is_not_kept_for_another_filter_though_an_order_is_on_its_way() -> None:
    store = filled(row("a"), row("b"))
    store.hold("a")
    earlier = store.plan()
    store.set_filter(lambda item: item.id == "b")
    store.adopt(earlier.order())
    store.hold("a")  # where the cursor still is
    store.reorder()
    assert store.order == ["b"]
