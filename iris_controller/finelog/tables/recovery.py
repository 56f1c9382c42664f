"""What a store of tables starts from when one of its small files is missing or damaged: what can be told anew from the segments.

Must never take a damaged file for an empty one without a word.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.tables import books as ledgers
from iris_controller.finelog.tables import registry
from iris_controller.finelog.tables.books import Books

if TYPE_CHECKING:
    from pathlib import Path

    from iris_controller.finelog.catalog import Catalog
    from iris_controller.finelog.tables.registry import Registered

log = logging.getLogger("iris.finelog")


def load_registry(folder: Path) -> dict[str, Registered]:
    """The tables that were registered. Raises OSError."""
    try:
        return registry.load(folder) or {}
    except registry.RegistryDamaged as error:
        aside = folder / f"{registry.FILE_NAME}.damaged"
        (folder / registry.FILE_NAME).rename(aside)
        log.error(
            "%s; it is kept as %s, and tables other than those of Iris come back when registered again", error, aside
        )
        return {}


def load_books(folder: Path, catalog: Catalog) -> Books:
    """How far every producer got, as of the files that became segments. Raises OSError."""
    try:
        found = ledgers.load(folder)
    except ledgers.BooksDamaged as error:
        log.error("%s; how far producers got is read from the segments", error)
        found = None
    if found is None:
        found = _books_of_segments(catalog)
    newest = [
        segments[-1].last_seq for name in catalog.tables() if name != LOG and (segments := catalog.segments(name))
    ]
    found.next_seq = max([found.next_seq, *(seq + 1 for seq in newest)])
    return found


def _books_of_segments(catalog: Catalog) -> Books:
    found = Books()
    for name in catalog.tables():
        if name == LOG:
            continue
        from iris_controller.finelog.segments import SegmentDamaged, read_footer

        for segment in catalog.segments(name):
            try:
                footer = read_footer(catalog.folder_of(name) / segment.name)
            except (SegmentDamaged, OSError) as error:
                log.error("%s: a producer may store its rows of %s again", error, name)
                continue
            for producer, number in footer.marks.items():
                found.of(name).note(producer, number, segment.last_seq)
    return found
