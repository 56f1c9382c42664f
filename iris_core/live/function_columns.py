"""The columns of the functions of a profile: own time and all time, in seconds and in shares; rules as in `columns`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from iris_core.live.columns import ColumnSpec, Tone
from iris_core.live.wording import or_nothing


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """One function: seconds in itself, seconds in it and below it, and of how many in all."""

    name: str
    file: str
    own: float
    total: float
    whole: float

    def share(self, seconds: float) -> float:
        """Of all, 0 to 100."""
        return 100 * seconds / self.whole if self.whole else 0.0


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


def _tone(row: FunctionRow) -> Tone:
    return Tone.WARN if row.share(row.own) >= 10 else Tone.PLAIN


FUNCTIONS: Final[dict[str, ColumnSpec[FunctionRow]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="own_share", title="OWN", min_width=6, max_width=6, align="right", tone=_tone,
            value=lambda row: row.share(row.own), text=lambda row, _: f"{row.share(row.own):.1f}%", sort=lambda row, _: -row.own, falls=True,
        ),
        _column(
            id="own", title="SECONDS", min_width=8, max_width=8, align="right", hide=2,
            value=lambda row: row.own, text=lambda row, _: f"{row.own:.2f}", sort=lambda row, _: -row.own, falls=True,
        ),
        _column(
            id="total_share", title="TOTAL", min_width=6, max_width=6, align="right",
            value=lambda row: row.share(row.total), text=lambda row, _: f"{row.share(row.total):.1f}%", sort=lambda row, _: -row.total, falls=True,
        ),
        _column(
            id="total", title="SECONDS", min_width=8, max_width=8, align="right", hide=3,
            value=lambda row: row.total, text=lambda row, _: f"{row.total:.2f}", sort=lambda row, _: -row.total, falls=True,
        ),
        _column(
            id="name", title="FUNCTION", min_width=16, flex=2,
            value=lambda row: row.name, text=lambda row, _: or_nothing(row.name), sort=lambda row, _: row.name,
        ),
        _column(
            id="file", title="FILE", min_width=12, flex=3, hide=1, tone=lambda row: Tone.DIM,
            value=lambda row: row.file, text=lambda row, _: or_nothing(row.file), sort=lambda row, _: row.file,
        ),
    )
}  # fmt: skip
