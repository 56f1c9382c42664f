"""Endpoints: what tasks and the cluster itself serve, under names that others find them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.live.columns import pick
from iris_core.live.endpoint_columns import ENDPOINTS, access_text
from iris_core.live.feed import Feed
from iris_core.live.rows import Row
from iris_core.live.watch import Selector
from iris_core.live.watch_filters import ROW_FILTERS
from iris_core.live.watch_keys import ROW_IDS
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui.actions import BY_ID
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, Source, SpecCells

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows
    from iris_tui.widgets.virtual_table import Cells

_WATCH_ENDPOINTS: Final = 11  # WatchKind.WATCH_KIND_ENDPOINTS
COLUMNS: Final = (
    replace(ENDPOINTS["name"], min_width=26),
    *pick(ENDPOINTS, ("access", "address")),
    replace(ENDPOINTS["task_id"], min_width=20),
    *pick(ENDPOINTS, ("age", "lease", "metadata")),
)


def _rows(_selector: str, rows: WatchRows) -> Iterable[Row[Any]]:
    name_of = ROW_IDS["endpoints"]
    return [Row(name_of(item), "endpoint", item, natural=(item.name, item.endpoint_id)) for item in rows.endpoints]


class EndpointsScreen(ListScreen):
    """All endpoints of one cluster."""

    SCOPES: ClassVar[tuple[str, ...]] = ("endpoints", "list")
    BINDINGS = bindings("endpoints", "list")
    CSS_PATH = "lists.tcss"
    NOUN = "endpoint"
    TITLE = "Endpoints"
    FIELDS = ROW_FILTERS["endpoints"].fields
    WORDS = ROW_FILTERS["endpoints"].words
    MARKABLE = ("endpoint",)

    def make_source(self) -> Source:
        session = self.session
        return Feed(
            session.client, session.clock, [Selector("endpoints", _WATCH_ENDPOINTS)], _rows, kinds=("endpoint",)
        )

    def make_cells(self) -> Cells:
        return SpecCells(COLUMNS)

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return ROW_FILTERS["endpoints"].row(value, now_ms)

    def empty_words(self) -> tuple[str, ...]:
        return (
            "Nothing serves.",
            'A task registers its own: iris_core.job.register_endpoint("/user/job/board", port).',
        )

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        endpoint = row.value
        runs = [Run(f" {one_line(endpoint.name)}{' (gone)' if row.gone else ''}"), Run(f"  {access_text(endpoint)}")]
        if endpoint.task_id:
            runs.append(Run(f"  of {one_line(endpoint.task_id)}", Tone.DIM))
        return [*runs, Run(f"  {one_line(self.url_of(endpoint))}")]

    def url_of(self, endpoint: Any) -> str:
        """Where the controller's port reaches it."""
        return self.session.client.url.rstrip("/") + str(endpoint.proxy_path)

    # --- what the keys do --------------------------------------------------------------------------------------------

    def _endpoint(self) -> Any:
        self.table.touch()
        row = self.table.row
        if row is None:
            raise ModelError("there is no endpoint to choose here")
        return row.value

    def do_open(self) -> None:
        endpoint = self._endpoint()
        if endpoint.task_id:
            self.console.go("task", endpoint.task_id)
        else:
            self.do_show()

    def do_show(self) -> None:
        from iris_tui.pages import Lines, TextPage

        endpoint = self._endpoint()
        url = self.url_of(endpoint)
        pairs = [
            ("Name", endpoint.name),
            ("URL", url),
            (
                "Reached by",
                "callers whom the cluster knows" if access_text(endpoint) == "private" else "these, and links",
            ),
            ("Address", endpoint.address),
            ("Task", endpoint.task_id or "none: it is the cluster's own"),
            ("Attempt", endpoint.attempt_uid),
            ("Id", endpoint.endpoint_id),
            *((f"metadata {key}", value) for key, value in sorted(endpoint.metadata.items())),
        ]

        async def load() -> Lines:
            return [(f"{label:<16}{one_line(text)}", Tone.PLAIN) for label, text in pairs if text]

        command = f"iris-core {self.session.selector} endpoints list {endpoint.name} -o wide"
        title = f"Endpoint {one_line(endpoint.name)}"
        self.app.push_screen(TextPage(self.session, title, load, command=command, dated=False))

    def do_copy_url(self) -> None:
        endpoint = self._endpoint()
        self.console.copy_text(self.url_of(endpoint), "the URL")

    def do_unregister(self, text: str) -> None:
        from iris_tui import changes

        names: Sequence[str] = text.split() or self.chosen_ids(("endpoint",))
        rows = [(name, self.store.get(name)) for name in names]
        for name, row in rows:
            if row is not None and not row.value.endpoint_id:
                raise ModelError(f"{name} is the cluster's own and stays")
        if not names:
            raise ModelError("unregister works on endpoints", hint="choose one, or name its id")
        changes.start(self.console, self.session, BY_ID["endpoints.unregister"], names)
