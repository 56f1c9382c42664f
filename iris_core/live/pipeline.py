"""How the way of log lines is: why there are none yet, how late they are, what is lost; asked again every ten seconds.

Must never be a reason for not showing a log: an account that cannot be had is only said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError
from iris_core.model.resources import format_duration
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_core.live.clock import Clock
    from iris_core.live.log_calls import LogCalls
    from iris_core.live.log_query import LogSource
    from iris_core.wire.gen.iris.v1.pipeline_pb2 import GetPipelineHealthResponse

ASK_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Account:
    """What the pipeline says of itself.

    Attributes:
        known: Whether it said anything.
        lag_ms: How long the oldest line waits on a worker, the largest of those asked about.
        lost_lines: Lines that those workers had to give up.
        unshipped_since_ms: Since when rows are on the log store's disk alone, 0 = none, or nothing is shipped.
        problem: What an operator should know, "" = nothing.
        fault: Why it could not be asked.
    """

    known: bool = False
    lag_ms: int = 0
    lost_lines: int = 0
    unshipped_since_ms: int = 0
    problem: str = ""
    fault: str = ""

    @classmethod
    def of(cls, found: GetPipelineHealthResponse) -> Account:
        """The account of an answer."""
        shippers = [worker.shipper for worker in found.workers]
        return cls(
            known=True,
            lag_ms=max((one.lag_ms for one in shippers), default=0),
            lost_lines=sum(one.lost_lines for one in shippers),
            unshipped_since_ms=found.store.shipping.unshipped_since_ms,
            problem=one_line("; ".join(found.problems)),
        )


def likely_cause(found: GetPipelineHealthResponse) -> str:
    """Why something that runs has no line, "" = this account does not tell: nothing is known of a worker that it is on."""
    if found.problems:
        return "; ".join(found.problems)
    waiting = [worker.shipper.lag_ms for worker in found.workers if worker.shipper.lag_ms]
    if waiting:
        return f"its lines are on the way, for {format_duration(max(waiting))}"
    if not found.workers:
        return ""
    return "nothing printed yet; its workers have delivered all that there was"


class PipelineWatch:
    """The account of the workers that write some logs. `changed` is called when it is another."""

    def __init__(
        self, calls: LogCalls, sources: Sequence[LogSource], clock: Clock, changed: Callable[[], None]
    ) -> None:
        self.account = Account()
        self.why = ""
        """Why there is no line, if there is none; "" = not known."""
        self._calls = calls
        # Of several logs, and of what a process writes, all workers are asked about.
        self._target = sources[0].key if len(sources) == 1 and not sources[0].is_process else ""
        self._clock = clock
        self._changed = changed

    async def run(self) -> None:
        """Ask for ever. Cancel the task to end it."""
        while True:
            await self.ask()
            await self._clock.sleep(ASK_S)

    async def ask(self) -> None:
        """Ask now."""
        try:
            found = await self._calls.pipeline(self._target)
        except IrisError as error:
            self.account, self.why = Account(fault=one_line(error.message)), ""
        else:
            self.account = Account.of(found)
            self.why = one_line(likely_cause(found)) if self._target else ""
        self._changed()
