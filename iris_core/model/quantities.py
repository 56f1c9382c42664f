"""Sizes, CPU amounts and durations as people write them, and back.

Inside Iris a size is whole bytes, CPU is whole millicores, a duration is whole
milliseconds. Text is met only at the edges, and always through these functions, so
that ``64GB`` means the same in a flag, a config file and a filter.

Units of size follow the letters: a plain prefix is decimal (``KB``, ``MB``,
``GB``, or just ``k``, ``m``, ``g``: powers of 1000) and one with an ``i`` is
binary (``KiB``, ``Ki``: powers of 1024). Case never matters.

Parsing is exact integer arithmetic: no float is involved, so a value never
changes by being parsed and formatted with ``exact=True``.
"""

from __future__ import annotations

import re
from typing import Final

from iris_core.model.errors import ModelError, did_you_mean, shown

MAX_INT64: Final = 2**63 - 1

_PREFIXES: Final = "kmgtpe"
_DECIMAL_UNITS: Final = tuple((f"{letter.upper()}B", 1000 ** (power + 1)) for power, letter in enumerate(_PREFIXES))
_BINARY_UNITS: Final = tuple((f"{letter.upper()}iB", 1024 ** (power + 1)) for power, letter in enumerate(_PREFIXES))
_SIZE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{name.lower(): factor for name, factor in _DECIMAL_UNITS + _BINARY_UNITS},
    **{name.lower()[:-1]: factor for name, factor in _DECIMAL_UNITS + _BINARY_UNITS},
}
_TIME_UNITS: Final[dict[str, int]] = {
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}

_NUMBER_RE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,19}))?")
_SIZE_RE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?)\s*([A-Za-z]{0,12})")
_CPU_RE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?)(m?)")
_DURATION_RE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?)\s*([A-Za-z]{1,12})\s*")


def parse_size(text: str, *, field: str = "size") -> int:
    """Parse ``64GB``, ``1.5GiB``, ``2g``, ``512Mi`` or ``4096`` (bytes) into bytes.

    A fraction of a byte is dropped.

    Raises:
        ModelError: not a size, negative, above 2⁶³-1, or a fraction without a unit.
    """
    match = _SIZE_RE.fullmatch(text.strip())
    if match is None:
        raise _bad(text, "size", field, "write it as 512MB, 64GB or 1.5GiB")
    number, unit = match[1], match[2].lower()
    factor = _SIZE_UNITS.get(unit)
    if factor is None:
        names = [name for name, _ in _DECIMAL_UNITS + _BINARY_UNITS]
        raise ModelError(
            f"{shown(text)} is not a size: no unit {shown(match[2])}",
            field=field,
            hint=did_you_mean(match[2], names) or "use KB, MB, GB, TB or KiB, MiB, GiB, TiB",
        )
    if factor == 1 and "." in number:
        raise ModelError(f"{shown(text)} is a fraction of a byte", field=field, hint="add a unit, such as GB")
    return _bounded(_scaled(number, factor), text, field)


def format_size(size: int, *, exact: bool = False) -> str:
    """Write bytes as text.

    By default at most three significant digits in decimal units (``1.07GB``),
    for measured values. With ``exact`` the shortest text that ``parse_size``
    turns back into the same number (``1.5GiB``, ``64GB``, ``1001B``), for requested ones.
    """
    if size < 0:
        return f"-{format_size(-size, exact=exact)}"
    return _exact_size(size) if exact else _rounded_size(size)


def parse_cpu(text: str, *, field: str = "cpu") -> int:
    """Parse cores (``0.5``, ``8``) or millicores (``500m``) into millicores.

    Raises:
        ModelError: not a number of cores, negative, finer than a millicore, or
            above what int32 holds.
    """
    match = _CPU_RE.fullmatch(text.strip())
    if match is None:
        raise _bad(text, "number of cores", field, "write it as 0.5, 8 or 500m")
    number, milli = match[1], bool(match[2])
    millicores = _scaled(number, 1 if milli else 1000)
    if _scaled(number, 10**19) != millicores * (10**19 if milli else 10**16):
        raise ModelError(
            f"{shown(text)} cores is finer than a millicore",
            field=field,
            hint="use at most 3 decimals",
        )
    if millicores > 2**31 - 1:
        raise ModelError(f"{shown(text)} cores is too many", field=field)
    return millicores


def format_cpu(millicores: int) -> str:
    """Write millicores as cores, exactly: ``0.5``, ``8``."""
    sign = "-" if millicores < 0 else ""
    whole, rest = divmod(abs(millicores), 1000)
    return f"{sign}{whole}" + (f".{rest:03d}".rstrip("0") if rest else "")


def parse_duration(text: str, *, default_unit: str = "s", field: str = "duration") -> int:
    """Parse ``90``, ``1h30m``, ``500ms``, ``1.5h`` or ``2d 4h`` into milliseconds.

    Units are w, d, h, m, s, ms, largest first, each at most once. A fraction of
    a millisecond is dropped.

    Args:
        text: The duration.
        default_unit: Unit of a bare number: seconds in flags and filters, ``"ms"`` in config files.
        field: Name to report in an error.

    Raises:
        ModelError: not a duration, negative, or above 2⁶³-1 ms.
    """
    stripped = text.strip()
    if _NUMBER_RE.fullmatch(stripped):
        return _bounded(_scaled(stripped, _TIME_UNITS[default_unit]), text, field)
    usage = "write it as 90s, 1h30m or 500ms"
    total, position, smallest = 0, 0, _TIME_UNITS["w"] + 1
    while position < len(stripped):
        match = _DURATION_RE.match(stripped, position)
        if match is None:
            raise _bad(text, "duration", field, usage)
        factor = _TIME_UNITS.get(match[2].lower())
        if factor is None:
            raise _bad(text, "duration", field, f"no unit {shown(match[2])}: use w d h m s ms")
        if factor >= smallest:
            raise _bad(text, "duration", field, "give each unit once, the largest first")
        total += _scaled(match[1], factor)
        smallest, position = factor, match.end()
    if not stripped:
        raise _bad(text, "duration", field, usage)
    return _bounded(total, text, field)


def format_duration(ms: int, *, exact: bool = False) -> str:
    """Write milliseconds as text, negative ones with a leading ``-``.

    By default for a person's eye: the two largest units (``1h30m``, ``2d4h``,
    ``12s``, ``850ms``), the rest dropped; below ten seconds one decimal. With
    ``exact`` nothing is dropped, and ``parse_duration`` gives the number back.
    """
    if ms < 0:
        return f"-{format_duration(-ms, exact=exact)}"
    if not exact and 1_000 <= ms < 10_000:
        tenths = ms // 100
        return f"{tenths // 10}.{tenths % 10}s" if tenths % 10 else f"{tenths // 10}s"
    parts = []
    rest = ms
    for unit, factor in _TIME_UNITS.items():
        if unit == "w":
            continue  # days read better than weeks; "w" is for input only
        count, rest = divmod(rest, factor)
        parts.append((count, unit))
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    if not exact:
        parts = [part for part in parts[:2] if ms < 1_000 or part[1] != "ms"]
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def format_age(ms: int) -> str:
    """Write an age as one short word, coarser the older it is: ``45s``, ``1m30s``, ``12m``, ``1h20m``, ``9d``.

    The units are those of ``format_duration``, so that an age and a duration beside it can be compared at a glance.
    A negative age (two hosts' clocks disagree) shows as ``0s``.
    """
    seconds = max(ms, 0) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 1:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 1:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _scaled(number: str, factor: int) -> int:
    """``number`` (decimal text) times ``factor``, rounded down."""
    whole, _, fraction = number.partition(".")
    return int(whole + fraction) * factor // int(10 ** len(fraction))


def _bounded(value: int, text: str, field: str) -> int:
    if value > MAX_INT64:
        raise ModelError(f"{shown(text)} is too large", field=field)
    return value


def _bad(text: str, what: str, field: str, hint: str) -> ModelError:
    return ModelError(f"{shown(text)} is not a {what}", field=field, hint=hint)


def _exact_size(size: int) -> str:
    best = f"{size}B"
    for name, factor in _DECIMAL_UNITS + _BINARY_UNITS:
        if size < factor:
            continue
        thousandths, rest = divmod(size * 1000, factor)
        if rest == 0:
            text = format_cpu(thousandths) + name
            if len(text) <= len(best):
                best = text
    return best


def _rounded_size(size: int) -> str:
    if size < 1000:
        return f"{size}B"
    name, factor = next((unit for unit in _DECIMAL_UNITS if size * 1000 < unit[1] * 999_500), _DECIMAL_UNITS[-1])
    scaled = size / factor
    decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    text = f"{scaled:.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + name
