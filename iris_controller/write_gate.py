"""Who may change the state now, and the words for those who may not.

Three things shut the gate: the controller ends (`closing`), another one owns the state (`fenced`), or it stands still for a moment
(`held`), which its holder alone may pass. Every command from outside asks here before it is queued, and what does its work without a
command asks too. Must never wait, and never let a command in silently that will not be carried out.
"""

from __future__ import annotations

from iris_controller.rpc.errors import RpcError, unavailable

RETRY_MS = 2_000


class WriteGate:
    """Open until the loop sets one of the three; each reason ends up in the refusals."""

    __slots__ = ("closing", "fenced", "held")

    def __init__(self) -> None:
        self.closing = False
        """Nothing is taken in from outside any more."""
        self.fenced = ""
        """By whom or what, "" = it is not."""
        self.held = ""
        """Why nothing is taken in for now, "" = it is."""

    @property
    def is_open(self) -> bool:
        """Whether anybody may write."""
        return not (self.closing or self.fenced or self.held)

    def require_open(self, *, by_holder: bool = False) -> None:
        """Raises UNAVAILABLE when nothing may be written; `by_holder` may while it is held and nothing else is."""
        if self.closing:
            raise shutting_down("the controller is shutting down")
        if self.fenced:
            raise self.refusal()
        if self.held and not by_holder:
            raise unavailable(
                f"the controller changes nothing now: {self.held}",
                code="held",
                hint="nothing was done; try again in a moment",
                retry_after_ms=RETRY_MS,
            )

    def refusal(self) -> RpcError:
        """For whoever meets the fence."""
        return unavailable(
            f"this controller has stopped writing: {self.fenced}",
            code="fenced",
            hint="nothing was changed; ask the controller that took over",
        )


def shutting_down(why: str) -> RpcError:
    """For whoever comes too late, or is still waiting when the controller ends."""
    return unavailable(why, code="shutting_down", retry_after_ms=RETRY_MS)


def unwritable(why: str) -> RpcError:
    """For whoever waited for a batch that the store did not take."""
    return unavailable(
        f"the controller cannot write its state: {why}",
        code="store_unwritable",
        hint="nothing was changed; free space on its disk, then try again",
        retry_after_ms=5_000,
    )
