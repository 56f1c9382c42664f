"""The SQL endpoint's child process: one query over one read-only connection, bounded in memory, time and output.

Runs as a script of its own (`python -I -S query_child.py`), reads one JSON request from stdin, for which it may wait for long, and
writes one JSON answer. Imports nothing of the project, holds no secret and cannot write: the connection is read-only, an authorizer
allows only reading, and the kernel's limits end what escapes SQLite's own (targets §3d).
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
import time

ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
FORBIDDEN_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
REFUSALS = ("not authorized", "prohibited", "authorization denied")
HIDDEN_TABLES = {"request_ids"}
MEMORY_BYTES = 512 * 1024 * 1024
LENGTH_BYTES = 8_000_000
ANSWER_BYTES = 16 * 1024 * 1024
SHM_BYTES = 16 * 1024 * 1024
"""A reader of a WAL file may have to make the shared index beside it; nothing larger can be written."""


def authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    if action not in ALLOWED:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and (first or "") in HIDDEN_TABLES:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def cell(value: object) -> object:
    """Blobs as a placeholder with their size; text that is no Unicode with its bytes replaced."""
    if isinstance(value, bytes):
        return f"<blob {len(value)} bytes>"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def run(request: dict[str, object]) -> dict[str, object]:
    seconds = float(str(request["seconds"]))
    max_rows = int(str(request["max_rows"]))
    sql = str(request["sql"])
    connection = sqlite3.connect(f"{request['uri']}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    connection.execute("PRAGMA query_only=ON")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA mmap_size=0")
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 1000)
    connection.set_authorizer(authorize)
    try:
        cursor = connection.execute(sql)
    except sqlite3.Warning as error:
        return {"error": "syntax", "message": str(error)}
    columns = [d[0] for d in cursor.description or ()]
    if not columns:
        return {"error": "syntax", "message": "the text holds no statement that returns rows"}
    rows: list[str] = []
    types = ["" for _ in columns]
    size = 0
    truncated = False
    for row in cursor:
        if len(rows) >= max_rows or size > ANSWER_BYTES:
            truncated = True
            break
        for position, value in enumerate(row):
            if not types[position] and value is not None:
                types[position] = {int: "integer", float: "real", str: "text", bytes: "blob"}[type(value)]
        text = json.dumps([cell(value) for value in row], ensure_ascii=False)
        size += len(text)
        rows.append(text)
    return {
        "columns": [[name, kind] for name, kind in zip(columns, types, strict=True)],
        "rows": rows,
        "truncated": truncated,
    }


def main() -> None:
    # Before a word is read: it may have been started long ahead.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHM_BYTES, SHM_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = sys.stdin.buffer.read()
    if not question:
        # Nobody asks any more.
        return
    request = json.loads(question)
    seconds = float(request["seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, int(seconds) + 3))
    try:
        answer = run(request)
    except sqlite3.OperationalError as error:
        text = str(error)
        if any(word in text for word in REFUSALS):
            answer = {"error": "refused", "message": text}
        elif "interrupted" in text:
            answer = {"error": "limit", "message": f"the query ran longer than {seconds:g} s"}
        else:
            answer = {"error": "syntax", "message": text}
    except sqlite3.DatabaseError as error:
        refused = any(word in str(error) for word in REFUSALS)
        answer = {"error": "refused" if refused else "syntax", "message": str(error)}
    except (sqlite3.Error, MemoryError, OverflowError) as error:
        answer = {"error": "limit", "message": f"the query needs too much: {str(error) or 'memory'}"}
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
