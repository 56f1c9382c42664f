"""`cluster init-keys`: the key that signs a controller's tokens, made where the operator wants it to be.

The private half goes to a file of its owner alone, to Google's Secret Manager, or to standard output for whoever keeps secrets elsewhere, and
nowhere else. A key that is there is read and not replaced, unless that is asked for; then the one before stays: beside the file, or as the
version before. A key that cannot be read is an error, and never a reason to make another one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from iris_core.cli import output
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.auth.gcp_secrets import SecretManager
    from iris_core.auth.keys import SigningKey
    from iris_core.cli.session import Session

MEMBER: Final = re.compile(r"(user|serviceAccount|group|domain|principal|principalSet):[^\s,]{1,512}")
STANDING: Final = "list its public half in auth.previous_public_keys until its tokens have ended"


@click.command("init-keys", short_help="Make the key that signs a controller's tokens.")
@click.option("--out-file", metavar="FILE", help="Write the private key there (0600), or read the one that is there.")
@click.option(
    "--gcp-secret",
    metavar="NAME",
    help="Keep the private key in Google's Secret Manager as projects/P/secrets/S, or read the one that is there.",
)
@click.option(
    "--accessor", multiple=True, metavar="MEMBER", help="Let this account read --gcp-secret: serviceAccount:NAME@…, user:…"
)  # fmt: skip
@click.option("--rotate", is_flag=True, help="Make a new key where there is one; the one before it is kept.")
@click.pass_obj
def init_keys(
    session: Session, out_file: str | None, gcp_secret: str | None, accessor: tuple[str, ...], rotate: bool
) -> None:
    """Make an Ed25519 key for auth.signing_key of a cluster file, and print its id and its public half.

    Without --out-file and --gcp-secret the private key is printed, too: keep it in a store of secrets. No controller is asked. While one key
    replaces another, auth.previous_public_keys lists the public half of the one before; without that every worker has to register anew.

    \b
    iris-core cluster init-keys --out-file /etc/iris/signing.key
    iris-core cluster init-keys --gcp-secret projects/P/secrets/S --accessor serviceAccount:controller@P.iam.gserviceaccount.com
    """
    from iris_core.auth.keys import new_key

    if out_file and gcp_secret:
        raise UsageFailed("--out-file and --gcp-secret: a key is kept in one place")
    if rotate and not (out_file or gcp_secret):
        raise UsageFailed(
            "--rotate goes with --out-file or --gcp-secret", hint="without a place every run makes a new key"
        )
    if accessor and not gcp_secret:
        raise UsageFailed("--accessor goes with --gcp-secret")
    for member in accessor:
        if not MEMBER.fullmatch(member):
            raise UsageFailed(
                f"--accessor {member} is no account", hint="write serviceAccount:NAME@…, user:… or group:…"
            )
    if gcp_secret is not None:
        _stored(session, gcp_secret, accessor, rotate)
    elif out_file is not None:
        _filed(session, Path(out_file).expanduser().absolute(), rotate)
    else:
        key = new_key()
        output.write(key.private_pem())
        output.write(_public(key))


def _filed(session: Session, path: Path, rotate: bool) -> None:
    key, made, before = _in_file(path, rotate)
    output.write(_public(key))
    if not made:
        session.diagnostics.note(f"the key was in {path} already; --rotate replaces it")
        return
    session.diagnostics.note(f"wrote {path}; in the cluster file: auth: {{signing_key: file:{path}}}")
    if before is not None:
        session.diagnostics.note(f"the key before it is kept in {before}; {STANDING}")


def _in_file(path: Path, rotate: bool) -> tuple[SigningKey, bool, Path | None]:
    """The key in a file, whether it is new, and where the one before it is kept. Raises IrisError."""
    from iris_core.auth.keys import create_key, load_key, replace_key

    try:
        if not rotate:
            return load_key(path), False, None
        key, kept = replace_key(path)
        return key, True, kept
    except FileNotFoundError:
        pass
    try:
        return create_key(path), True, None
    except FileExistsError:
        raise IrisError(f"somebody else has just made {path}", hint="look at it, and try again") from None


def _stored(session: Session, name: str, accessors: tuple[str, ...], rotate: bool) -> None:
    from iris_core.auth.gcp_secrets import SecretManager
    from iris_core.model.errors import ModelError
    from iris_core.model.secret_reference import GCP, check_gcp_secret

    try:
        secret = check_gcp_secret(name)
    except ModelError as error:
        raise UsageFailed(f"--gcp-secret: {error.message}", hint=error.hint) from None
    manager = SecretManager()
    try:
        key, version, before = _in_manager(manager, secret, rotate)
        output.write(_public(key))
        say = session.diagnostics.note
        if version == before:
            say(f"the key was in {version} already; --rotate adds another version")
        say(f"in the cluster file: auth: {{signing_key: {GCP}{version}}}")
        if version != before and before:
            say(f"the key before it stays in {before}; {STANDING}")
        for member in accessors:
            new = manager.allow(secret, member)
            say(f"{member} {'may read' if new else 'could already read'} {secret}")
    finally:
        manager.close()


def _in_manager(manager: SecretManager, secret: str, rotate: bool) -> tuple[SigningKey, str, str]:
    """The key of a secret, the version that holds it, and the version that was the latest before, "" = none. Raises IrisError."""
    from iris_core.auth.gcp_secrets import SecretsFailed
    from iris_core.auth.keys import key_of, new_key

    before = ""
    try:
        latest = manager.access(f"{secret}/versions/latest")
    except SecretsFailed as error:
        # Only what is not there at all is made; one that is disabled, or that may not be read, is somebody's key.
        if error.status != "NOT_FOUND":
            raise
        if not manager.exists(secret):
            manager.create(secret)
    else:
        # Each is read before another is made, so that nothing foreign is built upon.
        old, before = key_of(latest.data, latest.name), latest.name
        if not rotate:
            return old, before, before
    key = new_key()
    return key, manager.add(secret, key.private_pem().encode()), before


def _public(key: SigningKey) -> str:
    return f"kid: {key.kid}\n{key.public_pem()}"
