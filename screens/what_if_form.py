"""The form that asks what if a job asked for something else. It makes the words of `job explain` and nothing more.

Nothing is submitted or changed: the server counts again for the answer alone.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual import on
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Static

from iris_core.model.bands import band_label
from iris_core.model.errors import ModelError
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.text import one_line
from iris_tui.widgets.line_input import LineInput
from screens.form_screen import FormScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult

    from iris_core.wire.gen.iris.v1.explain_pb2 import Explanation


@dataclass(frozen=True, slots=True)
class _Field:
    """`many` = its text is several values, each an option of its own."""

    option: str
    label: str
    example: str
    many: bool = False


FIELDS: Final = (
    _Field("cpu", "CPU cores", "8"),
    _Field("memory", "Memory", "64GB"),
    _Field("gpu", "GPUs", "H100x8, none"),
    _Field("tpu", "TPU type", "v5litepod-16, none"),
    _Field("region", "Regions", "us-central1 us-east5", many=True),
    _Field("zone", "Zone", "us-central1-a"),
    _Field("constraint", "Constraints", "preemptible=false", many=True),
    _Field("without", "Without those on", "region", many=True),
    _Field("priority", "Band", "production"),
    _Field("replicas", "Tasks", "16"),
)


def words_of(values: dict[str, str]) -> list[str]:
    """The options for what was typed, by option. Raises ModelError for an open quote."""
    from iris_core.cli.what_if import split

    words: list[str] = []
    for field in FIELDS:
        text = values.get(field.option, "").strip()
        if not text:
            continue
        for value in split(text) if field.many else [text]:
            words += [f"--{field.option}", value]
    return words


def values_of(words: Sequence[str]) -> dict[str, str]:
    """The same the other way round: the texts of the form for options."""
    values: dict[str, str] = {}
    known = {f"--{field.option}": field for field in FIELDS}
    flat = [
        part for word in words for part in (word.split("=", 1) if word.startswith("--") and "=" in word else [word])
    ]
    for name, value in zip(flat[::2], flat[1::2], strict=False):
        field = known.get(name)
        if field is not None:
            text = shlex.quote(value) if field.many else value
            values[field.option] = f"{values[field.option]} {text}" if field.option in values else text
    return values


def _present(found: Explanation | None, field: _Field) -> str:
    """What the job asks for now, else an example."""
    if found is None:
        return f"as {field.example}"
    resources = found.resources
    device = resources.device
    now = {
        "cpu": format_cpu(resources.cpu_millicores),
        "memory": format_size(resources.memory_bytes, exact=True),
        "gpu": f"{device.variant or 'any'}x{device.count}" if device.count and device.kind == "gpu" else "",
        "tpu": device.variant if device.count and device.kind == "tpu" else "",
        "priority": band_label(found.place.requested_band) if found.HasField("place") else "",
        "replicas": str(found.tasks),
    }.get(field.option, "")
    return f"now {one_line(now)}" if now else f"as {field.example}"


class WhatIfForm(FormScreen["list[str] | None"]):
    """Dismissed with the words of the options, [] for none, None if nothing is to change.

    `check` is given the words and raises ModelError for what is wrong.
    """

    DEFAULT_CSS = """
    WhatIfForm .form-box { width: 70; }
    """
    AUTO_FOCUS = "Input"

    def __init__(
        self, subject: str, found: Explanation | None, words: Sequence[str], check: Callable[[Sequence[str]], object]
    ) -> None:
        super().__init__()
        self._subject = subject
        self._found = found
        self._values = values_of(words)
        self._check = check

    def compose(self) -> ComposeResult:
        with Vertical(classes="form-box"):
            yield Static(f"What if {one_line(self._subject)} asked for …", classes="form-title", markup=False)
            for field in FIELDS:
                with Horizontal(classes="field"):
                    yield Static(field.label, markup=False)
                    yield LineInput(
                        self._values.get(field.option, ""),
                        placeholder=_present(self._found, field),
                        id=f"what-if-{field.option}",
                        compact=True,
                    )
            yield Static("", id="what-if-fault", classes="form-fault", markup=False)
            yield Static("Empty stays as it is. Nothing is submitted or changed.", classes="label", markup=False)
            with Horizontal(classes="form-buttons"):
                yield Button("Back (Esc)", id="what-if-back", compact=True)
                yield Button("Count again (Enter)", id="what-if-go", variant="primary", compact=True)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._take()

    @on(Button.Pressed, "#what-if-go")
    def _take(self) -> None:
        values = {field.option: self.query_one(f"#what-if-{field.option}", Input).value for field in FIELDS}
        try:
            words = words_of(values)
            self._check(words)
        except ModelError as error:
            self.refuse(str(error))
            return
        self.dismiss(words)

    @on(Button.Pressed, "#what-if-back")
    def _back(self) -> None:
        self.action_leave()
