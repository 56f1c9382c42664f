"""What a request for a profile may say, and what it means where it says nothing (cli-auth-logs §4.1).

One check for worker and controller, so that a bad word is refused before anybody is asked. Must never look at a process.
"""

from __future__ import annotations

from typing import Final

from iris_controller.worker.profiling.cpu import native_by_default
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import profiles_pb2
from iris_core.wire.profiles import FORMATS as FORMAT_WORDS
from iris_core.wire.profiles import TYPES

DURATION_S: Final = 10
MOST_S: Final = 600
RATE_HZ: Final = 20
MOST_HZ: Final = 1000

CPU = profiles_pb2.PROFILE_TYPE_CPU
MEMORY = profiles_pb2.PROFILE_TYPE_MEMORY
THREADS = profiles_pb2.PROFILE_TYPE_THREADS

FORMATS: Final = {
    CPU: (
        profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE,
        profiles_pb2.PROFILE_FORMAT_FLAMEGRAPH,
        profiles_pb2.PROFILE_FORMAT_RAW,
    ),
    MEMORY: (
        profiles_pb2.PROFILE_FORMAT_HTML,
        profiles_pb2.PROFILE_FORMAT_TABLE,
        profiles_pb2.PROFILE_FORMAT_STATS,
        profiles_pb2.PROFILE_FORMAT_RAW,
    ),
    THREADS: (profiles_pb2.PROFILE_FORMAT_TEXT,),
}
"""Of each type, the usual format first."""


def settled(asked: profiles_pb2.ProfileOptions) -> profiles_pb2.ProfileOptions:
    """A copy in which everything is said. Raises ModelError, which names the field."""
    options = profiles_pb2.ProfileOptions()
    options.CopyFrom(asked)
    if options.type not in FORMATS:
        raise ModelError("the type of the profile is missing", field="type", hint="it is cpu, memory or threads")
    shapes = FORMATS[options.type]
    if not options.format:
        options.format = shapes[0]
    if options.format not in shapes:
        named = ", ".join(FORMAT_WORDS[one] for one in shapes)
        raise ModelError(
            f"a {TYPES[options.type]} profile has no format {FORMAT_WORDS.get(options.format, options.format)}",
            field="format",
            hint=f"it is one of {named}",
        )
    _in_range(options.duration_seconds, "duration_seconds", MOST_S)
    _in_range(options.rate_hz, "rate_hz", MOST_HZ)
    if options.pid < 0:
        raise ModelError(f"{options.pid} is no process id", field="pid")
    if options.locals and options.type != THREADS:
        raise ModelError("local variables go with a thread dump only", field="locals")
    if options.leaks and (options.type != MEMORY or options.format != profiles_pb2.PROFILE_FORMAT_HTML):
        raise ModelError("leaks go with a memory profile in HTML only", field="leaks")
    options.duration_seconds = 0 if options.type == THREADS else options.duration_seconds or DURATION_S
    options.rate_hz = options.rate_hz or RATE_HZ if options.type == CPU else 0
    if not options.HasField("native"):
        options.native = options.type == MEMORY or (options.type == CPU and native_by_default())
    return options


def _in_range(value: int, field: str, most: int) -> None:
    if not 0 <= value <= most:
        raise ModelError(f"{field} {value} is not between 0 and {most}", field=field)


def limit_s(options: profiles_pb2.ProfileOptions) -> float:
    """The longest that a profile of these (settled) options can take, every watchdog included."""
    if options.type == THREADS:
        return 40.0
    if options.type == CPU:
        return options.duration_seconds + 35.0
    return 2 * options.duration_seconds + 140.0
