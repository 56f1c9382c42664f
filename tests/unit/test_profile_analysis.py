"""Profiles read back: stacks and what they are called, pictures of them, thread dumps, and the rank that waits elsewhere."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.analysis import dumps, flame, hang, mermaid, speedscope, stacks
from iris_core.analysis.profile_summary import ROOT, ProfileSummary, subjob_of
from iris_core.analysis.stacks import Frame

MAIN = Frame("<module>", "/tmp/run-81/train.py")
HOT = Frame("hot_loop", "/tmp/run-81/train.py")
NATIVE = Frame("0x7f50f7a4524a", "/usr/lib/x86_64-linux-gnu/libc.so.6")

DUMP = """\
Process 41: python -c
import time
Thread 1 (idle): "not a thread"
    nor_a_frame (x.py:1)
Python v3.11.7 (/usr/bin/python3.11)

Thread 41 (idle): "MainThread"
    wait (threading.py:{line})
    train (train.py:20)
        Arguments:
            self: <Trainer at 0x7f50f7a4524a>
    <module> (train.py:30)
Thread 0x7F50F7A4524A (active)
    _worker (concurrent/futures/thread.py:81)

Process 42: python worker.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 42 (active+gil): "MainThread"
    read (queue.py:5)
"""


def document(*profiles: dict[str, object], frames: list[dict[str, object]] | None = None) -> bytes:
    shared = {"frames": frames or [{"name": "a", "file": "a.py"}, {"name": "b", "file": None}]}
    return json.dumps({"shared": shared, "profiles": list(profiles)}).encode()


def sampled(samples: list[list[int]], weights: list[float]) -> dict[str, object]:
    return {"type": "sampled", "name": "x", "samples": samples, "weights": weights}


def test_what_differs_between_captures_of_one_program_goes_from_the_names() -> None:
    assert stacks.clean("core::fmt::write::h0123456789abcdef") == "core::fmt::write"
    assert stacks.clean("/tmp/tmp8d2_x/job.py") == stacks.clean("/tmp/other/job.py")
    assert stacks.clean("/var/iris/work/1a229b4fd63ed976/workdir/src/job.py") == "src/job.py"
    assert stacks.clean('process 4711:"python x"') == 'process *:"python x"'
    assert stacks.clean("<Trainer at 0x7f50f7a4524a>") == "<Trainer at 0x*>"
    assert stacks.normalised(HOT).label == "hot_loop (/tmp/*/train.py)"


def test_time_in_compiled_code_counts_for_the_nearest_frame_with_a_name() -> None:
    assert stacks.leaf((MAIN, HOT, NATIVE)) is HOT
    assert stacks.leaf((Frame("main", "prog.c"), NATIVE)) == Frame("main", "prog.c")
    assert stacks.leaf((NATIVE,)) is NATIVE


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/v/lib/python3.11/site-packages/torch/nn/modules.py", "torch"),
        ("/v/lib/python3.11/site-packages/six.py", "six"),
        ("/usr/lib/python3.11/threading.py", "python standard library"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so"),
        ("/home/me/train.py", "train.py"),
        ("", "(no file)"),
    ],
)
def test_a_frame_belongs_to_a_library(file: str, library: str) -> None:
    assert stacks.library(Frame("f", file)) == library


names = st.text(
    st.characters(blacklist_characters=";()\n\r\x1c\x1d\x1e\x85\u2028\u2029\v\f", blacklist_categories=["Cs"]),
    min_size=1,
)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.lists(names.filter(lambda n: n == " ".join(n.split())), min_size=1).map(tuple), st.integers(1, 10**6)
    )
)
def test_folded_stacks_read_back_are_the_same(found: dict[tuple[str, ...], int]) -> None:
    given_stacks = {tuple(Frame(name) for name in stack): float(weight) for stack, weight in found.items()}
    again = stacks.from_folded(stacks.folded(given_stacks))
    assert {tuple(f.name for f in stack): weight for stack, weight in again.items()} == pytest.approx(
        {stack: float(weight) for stack, weight in found.items()}, rel=1e-4
    )


def test_a_folded_line_may_hold_a_command_of_several_lines() -> None:
    text = 'process 1:"python -c \nimport x\nx.y()";<module> (<string>:4) 29\nother 1\n'
    found = stacks.from_folded(text)
    assert [(stack[-1], weight) for stack, weight in found.items()] == [
        (Frame("<module>", "<string>"), 29),
        (Frame("other"), 1),
    ]


PROGRAM = 'python -c import os\nx = 5\ny = "a"; z = 3\n\tos.system("b")\n'
LOOP = "sh -c while :;\rdo :; done\n"


def test_stacks_as_py_spy_writes_them_get_a_line_each_whatever_commands_they_name() -> None:
    """Lines that end in numbers, semicolons and quotation marks are all in commands that people run."""
    raw = (
        f'process 7:"{PROGRAM}";<module> (<string>:3);hot (a "b".py:1) 29\n'
        f'process 7:"{PROGRAM}";process 8:"{LOOP}";<module> (<string>:1) 3\n'
        f'process 7:"{PROGRAM}" 2\n'
        'process 9:"sleep 5";main (x.py:1) 1\n'
    )
    told = stacks.on_one_line(raw)
    seven = 'process 7:"python -c import os x = 5 y = "a", z = 3 os.system("b")"'
    assert told.splitlines() == [
        f'{seven};<module> (<string>:3);hot (a "b".py:1) 29',
        f'{seven};process 8:"sh -c while :, do :, done";<module> (<string>:1) 3',
        f"{seven} 2",
        'process 9:"sleep 5";main (x.py:1) 1',
    ]
    assert stacks.on_one_line(told) == told, "what is on one line stays as it is"
    found = stacks.from_folded(raw)
    assert found == stacks.from_folded(told)
    assert sum(found.values()) == 35
    plain = "main (x.py:1);inner (y.py:2) 4\n"
    assert stacks.on_one_line(plain) == plain


def test_a_long_command_is_cut() -> None:
    (line,) = stacks.on_one_line(f'process 7:"python -c {"x" * 9000}";main (x.py:1) 4\n').splitlines()
    assert line.endswith('x…";main (x.py:1) 4')
    assert len(line) < 250


def test_speedscope_profiles_are_summed_over_threads() -> None:
    data = document(sampled([[0, 1], [0]], [0.5, 0.25]), sampled([[0, 1], []], [1.0, 9.0]))
    assert speedscope.parse(data) == {(Frame("a", "a.py"), Frame("b")): 1.5, (Frame("a", "a.py"),): 0.25}


def test_joined_speedscope_files_hold_the_stacks_of_all() -> None:
    one = document(sampled([[0]], [1.0]))
    two = document(sampled([[0, 1]], [2.0]), frames=[{"name": "c", "file": "c.py"}, {"name": "d"}])
    assert speedscope.parse(speedscope.join([one, two])) == stacks.merge([speedscope.parse(one), speedscope.parse(two)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        document({"type": "evented"}),
        document(sampled([[7]], [1.0])),
        document(sampled([[0]], [])),
    ],
)
def test_what_is_no_speedscope_file_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it |^zip\(\)"):
        speedscope.parse(data)


def test_the_flame_graph_is_one_svg_of_1400_pixels_and_rows_of_16() -> None:
    drawn = flame.svg({(MAIN, HOT): 3.0, (MAIN,): 1.0, (Frame('<&"\x1b]0;x\x07'),): 1e-9}, "seconds", "job <x>")
    root = ET.fromstring(drawn)
    boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert root.get("width") == "1400"
    assert [box.get("height") for box in boxes] == ["15"] * len(boxes)
    wide = {
        title.text or "": box.get("width")
        for title, box in zip(root.iter("{http://www.w3.org/2000/svg}title"), boxes, strict=True)
    }
    assert wide["hot_loop (/tmp/run-81/train.py) (3 seconds, 75.00%)"] == "1035.00"
    assert "1 boxes narrower" in drawn
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert "script" not in drawn


def test_the_flame_graph_of_nothing_is_still_a_picture() -> None:
    assert "0 distinct stacks" in flame.svg({}, "samples")


def test_the_call_graph_bridges_what_it_leaves_out_and_escapes_names() -> None:
    odd = Frame('say "<b>"')
    graph = mermaid.call_graph(
        {(MAIN, Frame("rare"), odd): 1.0, (MAIN, odd): 99.0, (MAIN, Frame("rare")): 0.0001}, least=0.02
    )
    assert 'n1["say #quot;#lt;b#gt;#quot;<br/>100.0%"]' in graph
    assert "n0 -->|100.0%| n1" in graph
    assert "rare" not in graph


def test_a_dump_is_read_back_thread_by_thread() -> None:
    first, second = dumps.parse(DUMP.format(line=320))
    assert (first.pid, first.command, second.pid) == (41, "python -c", 42)
    assert [thread.name for thread in first.threads] == ["MainThread", ""]
    assert first.main is not None
    assert first.main.frames == ("wait (threading.py:320)", "train (train.py:20)", "<module> (train.py:30)")
    assert second.threads[0].state == "active+gil"
    assert dumps.parse("nothing of the kind\n") == []


def test_a_name_with_a_line_end_gives_its_frames_to_no_other_thread() -> None:
    text = DUMP.format(line=320).replace("Thread 0x7F50F7A4524A (active)", 'Thread 9 (idle): "reader\nof "a""')
    first, _ = dumps.parse(text)
    assert [(thread.name, len(thread.frames)) for thread in first.threads] == [("MainThread", 3), ("reader", 1)]


def rank(index: int, line: int = 320, **values: object) -> hang.Rank:
    return hang.Rank(index, f"/me/train/{index}", tuple(dumps.parse(DUMP.format(line=line))), **values)  # type: ignore[arg-type]


def test_the_rank_that_waits_elsewhere_comes_first() -> None:
    verdict = hang.judge(
        [
            *(rank(index) for index in (0, 1, 2, 4, 5, 6, 7)),
            rank(3, line=99),
            hang.Rank(8, "/me/train/8", problem="gone"),
        ]
    )
    assert [[one.index for one in group.ranks] for group in verdict.groups] == [[3], [0, 1, 2, 4, 5, 6, 7]]
    assert [one.index for one in verdict.unknown] == [8]


def test_groups_are_shown_by_a_fresh_dump_where_there_is_one() -> None:
    verdict = hang.judge([rank(0, stored_ms=5), rank(1)])
    assert verdict.groups[0].example.index == 1


def test_other_threads_are_compared_when_asked_for() -> None:
    busy = dumps.parse(DUMP.format(line=320).replace("_worker", "_busy"))
    ranks = [rank(0), hang.Rank(1, "/me/train/1", tuple(busy))]
    alike = hang.judge(ranks)
    assert len(alike.groups) == 1
    assert alike.groups[0].varied
    assert len(hang.judge(ranks, all_threads=True).groups) == 2


def test_numbers_are_named_in_spans() -> None:
    assert hang.spans([3, 0, 1, 2, 5, 8, 7]) == "0-3,5,7-8"
    assert hang.spans(range(0, 100, 2)).endswith(" and 30 more")


def test_a_summary_groups_by_sub_job_and_merges_equal_stacks() -> None:
    summary = ProfileSummary("/me/train")
    other = (Frame("<module>", "/tmp/run-82/train.py"), Frame("hot_loop", "/tmp/run-82/train.py"))
    process = Frame('process 12:"python train.py"')
    for task, stack, weight in (
        ("/me/train/0", (process, MAIN, HOT), 2.0),
        ("/me/train/1", other, 1.0),
        ("/me/train/eval/3", (MAIN, NATIVE), 1.0),
    ):
        assert summary.wants(task)
        summary.add(task, {stack: weight})
    assert [(part.name, len(part.tasks), part.weight) for part in summary.parts()] == [(ROOT, 2, 3.0), ("eval", 1, 1.0)]
    assert summary.whole.captures == 3
    assert len(summary.whole.stacks) == 2
    assert summary.parts()[0].hottest == "hot_loop (/tmp/*/train.py)"
    assert summary.parts()[1].hottest == "<module> (/tmp/*/train.py)"
    assert summary.whole.libraries(1) == [("train.py", 3.0)]


def test_one_sub_job_can_be_chosen_by_its_last_name() -> None:
    summary = ProfileSummary("/me/train", "eval")
    assert [summary.wants(task) for task in ("/me/train/0", "/me/train/eval/0", "/me/train/a/eval/0")] == [
        False,
        True,
        True,
    ]
    assert summary.seen == {ROOT, "eval", "a/eval"}
    assert subjob_of("/me/train", "/me/training/0") == ROOT
