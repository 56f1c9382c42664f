"""Running a job again from the console: whether it can be is asked first, then a form with what it was submitted with, then the gate.

What the form comes to is `screens.rerun_request`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual import on
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Static

from iris_core.client.plans import make
from iris_core.contracts import IrisError, RpcFailed
from iris_core.live.faults import fault_text
from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId
from iris_core.model.text import one_line
from iris_tui.widgets.line_input import LineInput
from screens.form_screen import FormScreen
from screens.rerun_request import FIELDS, Rerun, request_of, texts_of

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.actions import Action
    from iris_tui.app import IrisApp
    from iris_tui.session import Session

METHOD: Final = "ControllerService/LaunchJob"
MOST_NAMES: Final = 20


async def rerun(console: IrisApp, session: Session, action: Action, job_id: str) -> None:
    """The whole way. A job that cannot be run again, because its bundle is gone, is said before the form opens."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui import changes

    try:
        found = await session.client.call(
            "ControllerService/GetJobStatus", pb.GetJobStatusRequest(job_id=job_id), pb.GetJobStatusResponse
        )
        plain = await _free(session, found)
    except IrisError as error:
        console.say(f"Rerun: {fault_text(error)}", severity="error")
        return
    wanted = await console.push_screen_wait(RerunForm(plain, found.request))
    if wanted is not None:
        await changes.change(
            console, session, action, [job_id], request=wanted.request, original=job_id, changes=wanted.words
        )


async def _free(session: Session, found: pb.GetJobStatusResponse) -> pb.LaunchJobRequest:
    """The rerun without any change, under a name that is free. Raises IrisError."""
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    job = JobId(found.job.job_id)
    above = str(job.parent) if job.parent is not None else f"/{job.user}"
    request = pb.LaunchJobRequest(existing_job_policy=common_pb2.EXISTING_JOB_POLICY_ERROR)
    request.rerun.job_id, request.rerun.incarnation = str(job), found.job.incarnation
    for number in range(1, MOST_NAMES + 1):
        request.name = f"{above}/{job.name[:100]}-rerun" + (f"-{number}" if number > 1 else "")
        try:
            plan = await make(session.client, METHOD, [request])
        except RpcFailed as error:
            if error.status != "ALREADY_EXISTS":
                raise
            continue
        if plan.unchecked:
            raise IrisError("this controller is of an earlier release and cannot run a job again")
        return request
    raise IrisError(f"{job} was run again {MOST_NAMES} times", hint="name the new one: job rerun --job-name NAME")


class RerunForm(FormScreen[Rerun | None]):
    """Dismissed with what is to be submitted, None if nothing is."""

    DEFAULT_CSS = """
    RerunForm .form-box { width: 78; max-height: 95%; }
    RerunForm #rerun-fields { height: auto; max-height: 15; overflow-y: auto; }
    RerunForm .field Static { width: 30; }
    RerunForm.-narrow #rerun-fields, RerunForm.-low #rerun-fields { max-height: 100; overflow-y: hidden; }
    """
    AUTO_FOCUS = "#rerun-name"

    def __init__(self, plain: pb.LaunchJobRequest, before: pb.LaunchJobRequest) -> None:
        super().__init__()
        self._plain = plain
        self._before = before

    def compose(self) -> ComposeResult:
        texts = texts_of(self._plain.name, self._before)
        with Vertical(classes="form-box"):
            yield Static(f"Run {one_line(self._plain.rerun.job_id)} again", classes="form-title", markup=False)
            names = ", ".join(sorted(self._before.environment.env_vars))
            said = f"with its variables {names}" if names else "it has no variables"
            yield Static(one_line(said), classes="label", markup=False)
            with Vertical(id="rerun-fields"):
                for field in FIELDS:
                    with Horizontal(classes="field"):
                        yield Static(f"{field.label}:", markup=False)
                        yield LineInput(texts[field.id], id=f"rerun-{field.id}", compact=True)
            yield Static("", id="rerun-fault", classes="form-fault", markup=False)
            with Horizontal(classes="form-buttons"):
                yield Button("Back (Esc)", id="rerun-back", compact=True)
                yield Button("See what it does", id="rerun-go", variant="primary", compact=True)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input.id == f"rerun-{FIELDS[-1].id}":
            self.query_one("#rerun-go").focus()
        else:
            self.focus_next()

    @on(Button.Pressed, "#rerun-go")
    def _take(self) -> None:
        texts = {field.id: self.query_one(f"#rerun-{field.id}", Input).value for field in FIELDS}
        try:
            wanted = request_of(self._plain, self._before, texts)
        except ModelError as error:
            if error.field in texts:
                self.query_one(f"#rerun-{error.field}", Input).focus()
            self.refuse(f"{error.message}{'; ' + error.hint if error.hint else ''}")
            return
        self.dismiss(wanted)

    @on(Button.Pressed, "#rerun-back")
    def _back(self) -> None:
        self.action_leave()
