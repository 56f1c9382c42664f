"""The one owner of standard error and of exit codes (DESIGN §5.14).

    0    ok
    1    failed, rejected, an RPC, the connection or authentication failed
    2    usage, which includes what the server says about the caller's words
    130  interrupted
    141  the reader of standard output went away

Every failure is one line: what, where, what to do. Text of others is made harmless before it is shown, and what looks
like a secret is hidden. Must never print a traceback unless `--traceback` asks for it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.contracts import IrisError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


class PipeClosed(Exception):
    """Whoever read standard output went away: nobody is left to tell."""


class Diagnostics:
    """What one run says on standard error. `verbose` adds debug lines, `json_errors` makes the final error one JSON
    object.
    """

    def __init__(self) -> None:
        self.verbose = False
        self.traceback = False
        self.json_errors = False

    def note(self, text: str) -> None:
        """A message for the operator."""
        self._write(text)

    def warn(self, text: str) -> None:
        """Something is not as the operator may think."""
        self._write(f"Warning: {text}")

    def debug(self, text: str) -> None:
        """Only with `--verbose`."""
        if self.verbose:
            self._write(f"debug: {text}")

    def _write(self, text: str) -> None:
        from iris_core.model.text import visible

        try:
            sys.stderr.write(visible(text, keep_newlines=True) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            # Standard error is closed or full: there is no other place to say so.
            pass

    @property
    def on_terminal(self) -> bool:
        """Whether somebody may be looking at standard error."""
        try:
            return sys.stderr.isatty()
        except (ValueError, AttributeError):
            return False

    def progress(self, text: str) -> None:
        """A line that the next one replaces; nothing where standard error is no terminal. "" clears it."""
        from iris_core.model.text import truncate_cells

        try:
            if self.on_terminal:
                width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
                sys.stderr.write("\r\x1b[K" + (truncate_cells(text, max(width - 1, 10)) if text else ""))
                sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass

    def fail(self, error: IrisError) -> int:
        """Prints the error and returns its exit code."""
        from iris_core.contracts import RpcFailed
        from iris_core.model.redact import redact_text
        from iris_core.model.text import one_line

        if self.json_errors:
            import json

            self._write(json.dumps({"error": error_object(error)}, ensure_ascii=False))
            return error.exit_code
        message, hint = one_line(redact_text(error.message)), one_line(redact_text(error.hint))
        if isinstance(error, RpcFailed) and error.position is not None and "position" not in message:
            message += f" (at position {error.position})"
        self._write(f"Error: {message}" + (f"; {hint}" if hint else ""))
        return error.exit_code


def error_object(error: IrisError) -> dict[str, Any]:
    """The error as programs read it: `message`, `hint`, and for a server's error its status and detail."""
    from iris_core.contracts import RpcFailed
    from iris_core.model.redact import redact_text

    fields: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": redact_text(error.message),
        "hint": redact_text(error.hint),
    }
    if isinstance(error, RpcFailed):
        fields |= {
            "status": error.status,
            "code": error.code,
            "subject": error.subject,
            "field": error.field,
            "position": error.position,
            "retry_after_ms": error.retry_after_ms,
        }
    return fields


def guarded(diagnostics: Diagnostics, body: Callable[[], object], finish: Callable[[], None]) -> int:
    """Runs a command and `finish` (which flushes standard output), and returns the exit code that the outcome stands
    for.

    A body that returns a number means that exit code. Every exception ends here.
    """
    try:
        try:
            code = body()
        except (PipeClosed, BrokenPipeError):
            raise
        except Exception as error:
            code = _failed(diagnostics, error)
        finish()
    except (PipeClosed, BrokenPipeError):
        _silence(sys.stdout)
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        # Standard output could not be written to its end.
        _silence(sys.stdout)
        return _failed(diagnostics, error)
    return code if isinstance(code, int) and not isinstance(code, bool) else OK


def _failed(diagnostics: Diagnostics, error: Exception) -> int:
    import click

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        diagnostics.note(error.format_message())
        return USAGE
    if isinstance(error, click.ClickException):
        return diagnostics.fail(_from_click(error))
    from iris_core.contracts import IrisError

    if isinstance(error, IrisError):
        if diagnostics.traceback:
            _traceback()
        return diagnostics.fail(error)
    return diagnostics.fail(_unexpected(diagnostics, error))


def _from_click(error: Any) -> IrisError:
    import click

    from iris_core.contracts import IrisError

    is_option = isinstance(error, click.NoSuchOption)
    text = f"No such option {error.option_name!r}" if is_option else error.format_message().rstrip(".")
    failed = IrisError(text)
    failed.exit_code = error.exit_code
    if isinstance(error, click.UsageError):
        possible = [word for word in getattr(error, "possibilities", None) or [] if _is_near(error, word)]
        if possible:
            failed.hint = "did you mean " + " or ".join(repr(word) for word in sorted(possible)) + "?"
        elif error.ctx is not None and not text.endswith("?"):
            failed.hint = f"see {error.ctx.command_path} --help"
    return failed


def _is_near(error: Any, word: str) -> bool:
    """Whether an option that click proposes may be meant: two dashes that all of them have make no likeness."""
    from iris_core.model.errors import did_you_mean

    asked, known = str(getattr(error, "option_name", "")).lstrip("-"), word.lstrip("-")
    return known.startswith(asked) or bool(did_you_mean(asked, [known]))


def _unexpected(diagnostics: Diagnostics, error: Exception) -> IrisError:
    from iris_core.contracts import IrisError
    from iris_core.model.errors import ModelError

    if isinstance(error, ModelError):
        # Several options may take the same kind of word: which one it was is part of what is wrong.
        is_named = not error.field.startswith("-") or error.field in error.message
        failed = IrisError(error.message if is_named else f"{error.field}: {error.message}", hint=error.hint)
        failed.exit_code = USAGE
        return failed
    if isinstance(error, UnicodeEncodeError) and "\udc80" <= error.object[error.start] <= "\udcff":
        # Such a character stands for a byte of a word, variable or file name of the caller's that is not UTF-8.
        failed = IrisError(f"{error.object[:60]!a} is not UTF-8 text")
        failed.exit_code = USAGE
        return failed
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return IrisError(f"{error.strerror.lower()}{place}")
    if diagnostics.traceback:
        _traceback()
    said = " ".join(str(error).split())[:300]
    return IrisError(
        f"internal error: {type(error).__name__}{': ' + said if said else ''}",
        hint="this is a fault of the program; run it again with --traceback and report what it prints",
    )


def _traceback() -> None:
    import traceback

    from iris_core.model.redact import redact_text
    from iris_core.model.text import visible

    sys.stderr.write(visible(redact_text(traceback.format_exc()), keep_newlines=True))


def _silence(stream: Any) -> None:
    """What is still buffered goes nowhere, so that the interpreter does not fail on it once more when it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass
