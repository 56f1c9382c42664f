"""A call graph as Mermaid text, small enough to be read: the heaviest functions and the calls between them.

A function that is left out is bridged: its callers point to what it calls. Names come from workloads; what Mermaid would take for
its own syntax is escaped. Pure.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from iris_core.model.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.analysis.stacks import Stack

NODES: Final = 24
EDGES: Final = 40
_LABEL: Final = 60


def call_graph(stacks: Mapping[Stack, float], least: float = 0.01) -> str:
    """The graph of what holds at least the share `least` of all time."""
    whole = sum(stacks.values())
    inclusive: dict[str, float] = {}
    for stack, weight in stacks.items():
        for label in {frame.label for frame in stack}:
            inclusive[label] = inclusive.get(label, 0.0) + weight
    ranked = sorted(inclusive.items(), key=lambda item: (-item[1], item[0]))
    kept = [label for label, weight in ranked if weight >= least * whole][:NODES]
    number = {label: f"n{place}" for place, label in enumerate(kept)}
    edges: dict[tuple[str, str], float] = {}
    for stack, weight in stacks.items():
        path = [frame.label for frame in stack if frame.label in number]
        for pair in {(above, below) for above, below in pairwise(path) if above != below}:
            edges[pair] = edges.get(pair, 0.0) + weight
    lines = ["graph TD"]
    for label in kept:
        lines.append(f'  {number[label]}["{_text(label)}<br/>{_percent(inclusive[label], whole)}"]')
    drawn = sorted(edges.items(), key=lambda item: (-item[1], item[0]))[:EDGES]
    lines += [f"  {number[above]} -->|{_percent(weight, whole)}| {number[below]}" for (above, below), weight in drawn]
    return "\n".join(lines) + "\n"


def _percent(weight: float, whole: float) -> str:
    return f"{100 * weight / whole:.1f}%" if whole else "0%"


def _text(label: str) -> str:
    shown = visible(" ".join(label.split()))
    shown = shown if len(shown) <= _LABEL else shown[: _LABEL - 1] + "…"
    for character, instead in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        shown = shown.replace(character, instead)
    return shown
