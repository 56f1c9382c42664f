"""What becomes of the command of `task exec` when its answer does not come: the connection breaks, or somebody presses Ctrl-C.

It is never sent a second time once it may have been heard. Must never say that a command was ended without having looked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from iris_core.client.calls import EXEC, NOT_KNOWN_IF_RUN, fate_unknown
from iris_core.contracts import IrisError, RpcFailed
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.model.ids import AttemptId, TaskId

ENDED_S: Final = 10.0
"""So long after Ctrl-C it is looked whether the command is gone: TERM, a second of grace, KILL, and the way there and back."""
LOOK_S: Final = 0.2


def ask(
    session: Session, request: pb.ExecInContainerRequest, target: TaskId | AttemptId, limit_s: float
) -> pb.ExecInContainerResponse:
    """The answer. Raises IrisError, also where it is not known whether the command ran; KeyboardInterrupt, once it was said what
    became of the command."""
    try:
        answer = session.client.call(EXEC, request, pb.ExecInContainerResponse, timeout_s=limit_s)
    except KeyboardInterrupt:
        session.diagnostics.note(f"interrupted: {_left(session, target)}")
        raise
    except IrisError as error:
        if not fate_unknown(EXEC, error):
            raise
        raise IrisError(f"exec in {target}: {NOT_KNOWN_IF_RUN}: {error.message}", hint=_look(session, target)) from None
    if answer.error.startswith(NOT_KNOWN_IF_RUN):
        raise IrisError(f"exec in {target}: {answer.error}", hint=_look(session, target))
    return answer


def _look(session: Session, target: TaskId | AttemptId) -> str:
    iris = f"{session.program} {session.selector()}"
    task = str(target).partition(":")[0]
    return f"look before you give it again: {iris}task describe {task}, {iris}task exec {task} -- ps -ef"


def _left(session: Session, target: TaskId | AttemptId) -> str:
    """What became of a command whose caller left, in words."""
    request = pb.GetProcessStatusRequest(target=str(target))
    until = time.monotonic() + ENDED_S
    while (left_s := until - time.monotonic()) > 0:
        try:
            status = session.client.call(
                "ControllerService/GetProcessStatus", request, pb.GetProcessStatusResponse, timeout_s=left_s
            )
        except RpcFailed as error:
            if error.status in ("FAILED_PRECONDITION", "NOT_FOUND"):
                return f"the command does not go on ({error.message})"
            return f"not known whether the command goes on in {target}: {error.message}"
        except IrisError as error:
            return f"not known whether the command goes on in {target}: {error.message}"
        said = status.process.details.get("execs")
        if said is None:
            return f"the command goes on in {target}: its worker is of an earlier release, which cannot end it"
        if said == "0":
            return f"the command was ended in {target}"
        time.sleep(LOOK_S)
    many = "a command of `task exec` goes" if said == "1" else f"{said} commands of `task exec` go"
    return f"{many} on in {target}"
