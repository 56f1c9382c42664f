"""Running a job again from the console: whether it can be is asked first, then a form with what it was submitted with, then the gate.

Only what was changed in the form is sent; everything else, secret values included, the server takes from the original. A secret word of
the command is shown as a marker and stays what it is while the command is left alone. Must never send a marker.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from iris_core.client.plans import make
from iris_core.contracts import IrisError, RpcFailed
from iris_core.live.faults import fault_text
from iris_core.model.bands import band_label, parse_band
from iris_core.model.errors import ModelError, shown
from iris_core.model.ids import JobId, check_component
from iris_core.model.quantities import format_cpu, format_size, parse_cpu, parse_size
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_tui.actions import Action
    from iris_tui.app import IrisApp
    from iris_tui.session import Session

METHOD: Final = "ControllerService/LaunchJob"
MOST_NAMES: Final = 20
MARKER: Final = "[redacted"


@dataclass(frozen=True, slots=True)
class Rerun:
    """What the form came to: the request, and the words of the command line that does the same."""

    request: pb.LaunchJobRequest
    words: tuple[str, ...]


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


@dataclass(frozen=True, slots=True)
class _Field:
    id: str
    label: str


FIELDS: Final = (
    _Field("name", "Name"),
    _Field("command", "Command"),
    _Field("replicas", "Tasks"),
    _Field("cpu", "CPU cores of each"),
    _Field("memory", "Memory of each"),
    _Field("priority", "Band"),
    _Field("timeout", "Limit in seconds, 0 = none"),
    _Field("env", "Variables: KEY=VALUE to set, -KEY to leave out"),
)


def texts_of(name: str, before: pb.LaunchJobRequest) -> dict[str, str]:
    """What the form shows when it opens, by field."""
    return {
        "name": name.rpartition("/")[2],
        "command": shlex.join(before.entrypoint.run_command.argv),
        "replicas": str(before.replicas or 1),
        "cpu": format_cpu(before.resources.cpu_millicores),
        "memory": format_size(before.resources.memory_bytes),
        "priority": band_label(before.priority_band) if before.priority_band else "",
        "timeout": f"{before.timeout_ms / 1000:g}",
        "env": "",
    }


def request_of(plain: pb.LaunchJobRequest, before: pb.LaunchJobRequest, texts: dict[str, str]) -> Rerun:
    """What is sent for these texts. Raises ModelError with the field."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    at_first = texts_of(plain.name, before)
    changed = {name: text.strip() for name, text in texts.items() if text.strip() != at_first[name]}
    request = pb.LaunchJobRequest()
    request.CopyFrom(plain)
    name = check_component(texts["name"].strip(), what="job name", field="name")
    request.name = f"{plain.name.rpartition('/')[0]}/{name}"
    words = ["--job-name", name]
    if "command" in changed:
        request.entrypoint.run_command.argv.extend(_command(changed["command"]))
    if "replicas" in changed:
        request.replicas = _number(changed["replicas"], "replicas", 1)
    if "cpu" in changed or "memory" in changed:
        request.resources.CopyFrom(before.resources)
        if "cpu" in changed:
            request.resources.cpu_millicores = parse_cpu(changed["cpu"], field="cpu")
        if "memory" in changed:
            request.resources.memory_bytes = parse_size(changed["memory"], field="memory")
    if changed.get("priority"):
        band: Any = parse_band(changed["priority"]).value
        request.priority_band = band
    if "timeout" in changed:
        request.timeout_ms = _number(changed["timeout"], "timeout", 0) * 1000
        if not request.timeout_ms:
            request.rerun.clear.append("timeout_ms")
    for option in ("replicas", "cpu", "memory", "priority", "timeout"):
        if changed.get(option):
            words += [f"--{option}", changed[option]]
    words += _variables(request, texts["env"])
    if "command" in changed:
        words += ["--", *request.entrypoint.run_command.argv]
    return Rerun(request, tuple(words))


def _command(text: str) -> list[str]:
    words = _split(text, "command")
    if not words:
        raise ModelError("there is no command to run", field="command")
    if any(MARKER in word for word in words):
        raise ModelError(
            "a secret word of the command is hidden here",
            field="command",
            hint="write it anew, or leave the command alone",
        )
    return words


def _variables(request: pb.LaunchJobRequest, text: str) -> list[str]:
    said: list[str] = []
    for word in _split(text, "env"):
        name, equals, value = word.partition("=")
        if word.startswith("-") and not equals:
            request.rerun.remove_env.append(word[1:])
            said += ["--remove-env", word[1:]]
        elif equals and name:
            request.environment.env_vars[name] = value
            said += ["-e", name, value]
        else:
            raise ModelError(f"{shown(word)} is neither KEY=VALUE nor -KEY", field="env")
    return said


def _split(text: str, field: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ModelError(f"{field}: {error}", field=field) from None


def _number(text: str, field: str, least: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= 1_000_000_000:
        raise ModelError(f"{field} is a whole number from {least}, not {shown(text)}", field=field)
    return int(text)


class RerunForm(ModalScreen[Rerun | None]):
    """Dismissed with what is to be submitted, None if nothing is."""

    DEFAULT_CSS = """
    RerunForm { align: center middle; }
    RerunForm #rerun { width: 78; max-width: 96%; height: auto; max-height: 95%; overflow-y: auto; background: $surface; border: tall $primary; padding: 0 1; }
    RerunForm #rerun-title { text-style: bold; }
    RerunForm .label { color: $text-muted; }
    RerunForm #rerun-fields { height: auto; max-height: 16; }
    RerunForm Input { border: none; padding: 0; height: 1; background: $background; }
    RerunForm #rerun-fault { color: $error; height: auto; display: none; }
    RerunForm Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    RerunForm Button { margin-left: 2; min-width: 12; }
    RerunForm Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]
    AUTO_FOCUS = "#rerun-name"

    def __init__(self, plain: pb.LaunchJobRequest, before: pb.LaunchJobRequest) -> None:
        super().__init__()
        self._plain = plain
        self._before = before

    def compose(self) -> ComposeResult:
        texts = texts_of(self._plain.name, self._before)
        with Vertical(id="rerun"):
            yield Static(f"Run {one_line(self._plain.rerun.job_id)} again", id="rerun-title", markup=False)
            names = ", ".join(sorted(self._before.environment.env_vars))
            said = f"with its variables {names}" if names else "it has no variables"
            yield Static(one_line(said), classes="label", markup=False)
            with VerticalScroll(id="rerun-fields", can_focus=False):
                for field in FIELDS:
                    yield Static(f"{field.label}:", classes="label", markup=False)
                    yield Input(texts[field.id], id=f"rerun-{field.id}", compact=True)
            yield Static("", id="rerun-fault", markup=False)
            with Horizontal():
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
            fault = self.query_one("#rerun-fault", Static)
            fault.update(f"{error.message}{'; ' + error.hint if error.hint else ''}")
            fault.display = True
            if error.field in texts:
                self.query_one(f"#rerun-{error.field}", Input).focus()
            return
        self.dismiss(wanted)

    @on(Button.Pressed, "#rerun-back")
    def action_leave(self) -> None:
        """Nothing is submitted."""
        self.dismiss(None)
