"""How a host is reached by SSH, as a cluster file says it: `defaults.ssh`, and the host that a section names.

What is not said here is ssh's own business: its configuration, agent and known hosts count as they do in a shell. Must never look at a
key, or at the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.document import Value

SSH_KEYS: Final = frozenset(
    {"user", "key_file", "known_hosts_file", "port", "connect_timeout", "impersonate_service_account"}
)
CONNECT_S: Final = 30
# ssh reads a name that begins with - as an option, and a user is put before it with an @.
_HOST: Final = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,254}")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class SshHost:
    """One host, and as whom.

    Attributes:
        host: A name or address; names of ssh's own configuration count.
        key_file: The private key to use and no other, "" = whatever ssh offers.
        known_hosts_file: Where its host key is looked up, "" = where ssh does.
        connect_timeout_s: For the connection alone.
    """

    host: str
    user: str = "root"
    port: int = 22
    key_file: str = ""
    known_hosts_file: str = ""
    connect_timeout_s: float = CONNECT_S

    @property
    def label(self) -> str:
        """As it is written in a message: `root@h1`, with the port if it is not the usual one."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")


def parse_ssh_host(host: Value | None, defaults: Mapping[str, Value]) -> SshHost:
    """The host of a section, with what `defaults.ssh` says. Raises UsageFailed, with file and line."""
    assert host is not None
    return SshHost(
        host=_matching(host, _HOST, "is not a host"),
        user=_matching(defaults["user"], _USER, "is not a user") if "user" in defaults else "root",
        port=defaults["port"].whole(1, 65535) if "port" in defaults else 22,
        key_file=_file(defaults, "key_file"),
        known_hosts_file=_file(defaults, "known_hosts_file"),
        connect_timeout_s=defaults["connect_timeout"].duration_ms(100, 600_000) / 1000
        if "connect_timeout" in defaults
        else CONNECT_S,
    )


def parse_label(label: str) -> SshHost:
    """The host of a label, as in `ssh://root@h1:22/path`; whatever is not said is ssh's own business. Raises UsageFailed."""
    user, separator, rest = label.rpartition("@")
    host, colon, port = rest.partition(":")
    fits = _HOST.fullmatch(host) and (not separator or _USER.fullmatch(user))
    if not fits or (colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise UsageFailed(f"{shown(label)} is not a host", hint="write it as user@host, or user@host:port")
    return SshHost(host, user or "root", int(port) if colon else 22)


def _matching(value: Value, pattern: re.Pattern[str], problem: str) -> str:
    text = value.text().strip()
    if not pattern.fullmatch(text):
        raise value.wrong(f"{shown(text)} {problem}")
    return text


def _file(defaults: Mapping[str, Value], key: str) -> str:
    if key not in defaults:
        return ""
    text, path = defaults[key].text(), defaults[key].place()
    # ssh splits a list of files at blanks and expands percent signs.
    if not path.is_absolute() or not text.isprintable() or any(character in text for character in ' "%$'):
        raise defaults[key].wrong(
            f"{shown(text)} is not a path that ssh takes", hint="write an absolute path without blanks"
        )
    return str(path)
