"""`cluster init-keys`: the key that signs a controller's tokens, made where the operator wants it to be.

The private half goes to a file of its owner alone, or to standard output for whoever keeps secrets elsewhere, and nowhere else. A key that is
there is read and not replaced, unless that is asked for; then the one before is kept beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.auth.keys import SigningKey
    from iris_core.cli.session import Session


@click.command("init-keys", short_help="Make the key that signs a controller's tokens.")
@click.option("--out-file", metavar="FILE", help="Write the private key there (0600), or read the one that is there.")
@click.option(
    "--rotate", is_flag=True, help="Put a new key in the place of the one in --out-file, which is kept beside it."
)
@click.pass_obj
def init_keys(session: Session, out_file: str | None, rotate: bool) -> None:
    """Make an Ed25519 key for auth.signing_key of a cluster file, and print its id and its public half.

    Without --out-file the private key is printed, too: keep it in a store of secrets. No controller is asked. While one key replaces another,
    auth.previous_public_keys lists the public half of the one before; without that every worker has to register anew.

    \b
    iris-core cluster init-keys --out-file /etc/iris/signing.key
    """
    from iris_core.auth.keys import new_key

    if rotate and not out_file:
        raise UsageFailed("--rotate goes with --out-file", hint="without a file every run makes a new key")
    if out_file is None:
        key = new_key()
        output.write(key.private_pem())
        output.write(_public(key))
        return
    path = Path(out_file).expanduser().absolute()
    key, made, before = _in_file(path, rotate)
    output.write(_public(key))
    if not made:
        session.diagnostics.note(f"the key was in {path} already; --rotate replaces it")
        return
    session.diagnostics.note(f"wrote {path}; in the cluster file: auth: {{signing_key: file:{path}}}")
    if before is not None:
        session.diagnostics.note(
            f"the key before it is kept in {before}; list its public half in auth.previous_public_keys until its tokens have ended"
        )


def _in_file(path: Path, rotate: bool) -> tuple[SigningKey, bool, Path | None]:
    """The key in a file, whether it is new, and where the one before it is kept. Raises IrisError."""
    from iris_core.auth.keys import create_key, load_key

    kept = None
    try:
        old = load_key(path)
    except FileNotFoundError:
        pass
    else:
        if not rotate:
            return old, False, None
        kept = path.with_name(f"{path.name}.{old.kid}")
        try:
            kept.hardlink_to(path)
            path.unlink()
        except FileExistsError:
            raise IrisError(f"{kept} is there already", hint="move it away, and try again") from None
        except OSError as error:
            raise IrisError(f"cannot keep the key in {kept}: {error.strerror}") from error
    try:
        return create_key(path), True, kept
    except FileExistsError:
        raise IrisError(f"somebody else has just made {path}", hint="look at it, and try again") from None


def _public(key: SigningKey) -> str:
    return f"kid: {key.kid}\n{key.public_pem()}"
