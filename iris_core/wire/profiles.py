"""What the kinds and formats of profiles are called in commands, SQL and file names.

The numbers of the wire are met in one place, so that a profile is called the same wherever it is shown. Must never know how one
is taken.
"""

from __future__ import annotations

from typing import Final

from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

TYPES: Final[dict[int, str]] = {
    pb.PROFILE_TYPE_CPU: "cpu",
    pb.PROFILE_TYPE_MEMORY: "memory",
    pb.PROFILE_TYPE_THREADS: "thread",
}
"""As the column `type` of `iris.profile` has them (cli-auth-logs §3.9)."""

FORMATS: Final[dict[int, str]] = {
    pb.PROFILE_FORMAT_SPEEDSCOPE: "speedscope",
    pb.PROFILE_FORMAT_FLAMEGRAPH: "flamegraph",
    pb.PROFILE_FORMAT_RAW: "raw",
    pb.PROFILE_FORMAT_HTML: "html",
    pb.PROFILE_FORMAT_TABLE: "table",
    pb.PROFILE_FORMAT_STATS: "stats",
    pb.PROFILE_FORMAT_TEXT: "text",
}
TRIGGERS: Final[dict[int, str]] = {
    pb.PROFILE_TRIGGER_ON_DEMAND: "on_demand",
    pb.PROFILE_TRIGGER_PERIODIC: "periodic",
}

_SUFFIXES: Final[dict[str, str]] = {
    "speedscope": "speedscope.json",
    "flamegraph": "svg",
    "html": "html",
    "table": "txt",
    "stats": "json",
    "text": "txt",
}
_ENDINGS: Final = frozenset({name.rpartition(".")[2] for name in _SUFFIXES.values()} | {"bin", "folded", "raw"})


def number_of(words: dict[int, str], word: str) -> int:
    """The wire's number of a word, 0 if it is none of them."""
    return next((number for number, known in words.items() if known == word), 0)


def suffix(kind: int, shape: int) -> str:
    """The end of a file's name, without its dot: `speedscope.json`."""
    if shape == pb.PROFILE_FORMAT_RAW:
        return "txt" if kind == pb.PROFILE_TYPE_CPU else "bin"
    return _SUFFIXES.get(FORMATS.get(shape, ""), "bin")


def endings(kind: int, shape: int) -> tuple[str, ...]:
    """How the name of a file may end that holds this: `svg`."""
    own = suffix(kind, shape).rpartition(".")[2]
    if shape != pb.PROFILE_FORMAT_RAW:
        return (own,)
    # What tools that draw flame graphs call one stack per line.
    return (own, "folded", "raw") if kind == pb.PROFILE_TYPE_CPU else (own, "raw")


def ending(name: str) -> str:
    """What a file's name ends in where that stands for a format of some profile, "" where it says nothing."""
    stem, _, end = name.rpartition("/")[2].rpartition(".")
    return end.lower() if stem and end.lower() in _ENDINGS else ""


def is_text(kind: int, shape: int) -> bool:
    """Whether it is meant to be read on a terminal."""
    return suffix(kind, shape) == "txt"
