"""What a statement may be: exactly one SELECT over the tables of the store, told by the engine's own parser.

The parser gives the statement as a tree, and only what is known to read is let through: a node or a table function that is not
listed here is refused, so a new release of the engine cannot open a door. Runs in the query's own process. Must never look at
the text of a statement itself.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
SOURCES = frozenset(
    {
        "BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "PIVOT", "SHOW_REF", "DELIM_GET",
        "COLUMN_DATA", "CTE",
    }
)  # fmt: skip
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"})
FORBIDDEN_FUNCTIONS = frozenset(
    {
        "getenv", "current_setting", "nextval", "currval", "setval", "setseed", "write_log", "parse_duckdb_log_message",
        "sleep_ms", "pg_sleep", "query", "query_table", "set_config", "current_query", "which_secret", "getvariable",
    }
)  # fmt: skip
_FILE = re.compile(r"[/\\*?]|://|\.(?:parquet|csv|tsv|json|jsonl|ndjson|db|duckdb|arrow|gz|zst)$", re.I)
_ENGINES_OWN = re.compile(r"(?:duckdb|pragma|sqlite)_|pg_(?:settings|views)$", re.I)
"""What the views begin with in which the engine tells of itself and of its files."""


@dataclass
class StatementRefused(Exception):
    """Why a statement does not run. `kind` is `refused`, `syntax` or `table`; `position` is a character offset."""

    kind: str
    message: str
    position: int | None = None

    def __str__(self) -> str:
        return self.message


@dataclass
class Statement:
    """A statement that may run. `tables` are the names that it reads and does not define itself."""

    tables: dict[str, int | None] = field(default_factory=dict)


def check(serialized: str, sql: str) -> Statement:
    """The statement in what `json_serialize_sql` gave for `sql`. Raises StatementRefused."""
    told = json.loads(serialized)
    if told.get("error"):
        raise _fault(told, sql)
    statements = told["statements"]
    if len(statements) != 1:
        raise StatementRefused(
            "refused" if statements else "syntax",
            f"the text holds {len(statements)} statements" if statements else "the query is empty",
        )
    found = Statement()
    own: set[str] = set()
    named: list[tuple[str, int | None, bool]] = []
    for node in _walk(statements[0]):
        kind = node.get("type")
        where = _position(node, sql)
        if "cte_map" in node and isinstance(kind, str):
            if kind not in NODES:
                word = kind.removesuffix("_NODE").removesuffix("_QUERY")
                raise StatementRefused("refused", f"{word} changes something", where)
            own |= {str(one["key"]).lower() for one in node["cte_map"].get("map", [])}
        elif "column_name_alias" in node or "sample" in node:
            _check_source(node, str(kind), where, named)
        if node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in FORBIDDEN_FUNCTIONS:
            raise StatementRefused("refused", f"the function {node['function_name']} is not available here", where)
        if node.get("class") == "PARAMETER":
            raise StatementRefused("syntax", "parameters such as ? or $1 have no value here", where)
    for name, where, is_bare in named:
        # A name that a statement defines somewhere may mean, elsewhere in it, what the engine has under it.
        if not is_bare or name.lower() not in own or _ENGINES_OWN.match(name):
            found.tables.setdefault(name, where)
    return found


def _check_source(
    node: dict[str, Any], kind: str, where: int | None, named: list[tuple[str, int | None, bool]]
) -> None:
    if kind not in SOURCES:
        raise StatementRefused("refused", f"{kind} is not available here", where)
    if kind == "BASE_TABLE":
        path = [str(part) for part in node.get("qualified_name", {}).get("path", [])] or [str(node["table_name"])]
        name = ".".join(path[1:] if path[0].lower() in ("main", "memory") and len(path) > 1 else path)
        if _FILE.search(name):
            raise StatementRefused("refused", "a statement reads tables, and neither files nor the network", where)
        named.append((name, where, len(path) == 1))
    elif kind == "TABLE_FUNCTION":
        function = str(node.get("function", {}).get("function_name", ""))
        if function.lower() not in TABLE_FUNCTIONS:
            raise StatementRefused(
                "refused", f"the table function {function} is not available here: a statement reads tables alone", where
            )
    elif kind == "SHOW_REF" and node.get("query") is None:
        raise StatementRefused("refused", "SHOW is not available here; `stats tables` lists the tables", where)


def _fault(told: dict[str, Any], sql: str) -> StatementRefused:
    message = str(told.get("error_message", ""))
    if told.get("error_type") == "not implemented":
        return StatementRefused("refused", "it is not a SELECT")
    if "expression depth" in message:
        return StatementRefused("refused", "the expressions are nested too deeply")
    where = told.get("position")
    return StatementRefused("syntax", message, _characters(sql, int(where)) if where is not None else None)


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object in the tree, without recursion: a statement may nest deeply."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += reversed(node.values())
        elif isinstance(node, list):
            waiting += reversed(node)


def _position(node: dict[str, Any], sql: str) -> int | None:
    where = node.get("query_location")
    return _characters(sql, where) if isinstance(where, int) and where < 1 << 40 else None


def _characters(sql: str, offset: int) -> int:
    """The character at a byte offset."""
    return len(sql.encode()[:offset].decode(errors="ignore"))
