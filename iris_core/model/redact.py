"""What counts as a secret, and how it is hidden.

Secrets reach Iris as environment values and as words of a command line. They are stored
sealed and shown as ``[redacted:NAME]``: in replies, logs, argv, journals and bug reports. One
rule decides for all of them. It goes by names and by well-known shapes of values, and errs
towards hiding: a hidden flag is a nuisance, a shown token is not.

By name (words split at ``_ - .`` and at capitals):

* a word that is or ends in TOKEN, SECRET, PASSWORD, PASSWD, PASSPHRASE, APIKEY, CREDENTIAL(S); the words
  AUTHORIZATION, BEARER, COOKIE, JWT, NETRC, DSN;
* a last word AUTH, PASS, PWD or PAT that is not the whole name (``PWD`` is the working folder);
* a last word KEY, except alone and in names such as ``PUBLIC_KEY``, ``SORT_KEY``, ``TEXT_KEY``.

Not secret: ``…_KEY_ID`` (names a key without opening anything), ``…_FILE``, ``…_PATH``, ``…_DIR`` (say
where a secret lies), the plural TOKENS (a count in every language model's options), ``PAD_TOKEN`` and its like.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ENDINGS: Final = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIAL", "CREDENTIALS")
_WORDS: Final = frozenset({"AUTHORIZATION", "BEARER", "COOKIE", "JWT", "NETRC", "DSN", "SECRETS", "PASSWORDS"})
_LAST_WORDS: Final = frozenset({"AUTH", "PASS", "PWD", "PAT"})
_HARMLESS_LAST_WORDS: Final = frozenset({"FILE", "PATH", "DIR", "NAME", "TYPE", "COUNT", "LIMIT", "LENGTH"})
_HARMLESS_KEYS: Final = frozenset(
    {
        *("PUBLIC", "SORT", "PARTITION", "CACHE", "PRIMARY", "FOREIGN", "GROUP", "ROW", "SHARD", "ROUTING", "INDEX"),
        *("DICT", "FEATURE", "METRIC", "MONITOR", "LABEL", "INPUT", "OUTPUT", "DATA", "TEXT", "PROMPT", "IMAGE"),
        *("AUDIO", "MESSAGE", "MESSAGES", "TARGET", "COLUMN", "JSON", "CONFIG", "HOT", "ATTENTION", "QUERY"),
    }
)
_HARMLESS_TOKENS: Final = frozenset(
    {"PAD", "EOS", "BOS", "UNK", "SEP", "CLS", "MASK", "IMAGE", "SPECIAL", "STOP", "PER"}
)
_ENV_FLAGS: Final = frozenset({"-e", "--env-vars"})

_SPLIT_RE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,127}"
_ASSIGNED_RE = re.compile(rf"(?<![A-Za-z0-9_.-])-{{0,2}}({_NAME})=|([\"'])({_NAME})\2\s{{0,4}}:\s{{0,4}}")
_VALUE_RE = re.compile(r"(?:\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'[^']*(?:'|\Z)|\\(?:.|\Z)|[^\s\"'&;\\])+", re.DOTALL)
_JSON_VALUE_RE = re.compile(r"\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'[^']*(?:'|\Z)|[^\s\"',;{}\[\]]+", re.DOTALL)
_WHOLE_WORD_RE = re.compile(rf"(-{{0,2}})({_NAME})=(.*)", re.DOTALL)
_FLAG_RE = re.compile(rf"--?({_NAME})")
_HEADER_RE = re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key)(\s*:\s*)([^\"'\r\n]+)", re.IGNORECASE)
# An SSH URL's user name says who connects and is no secret; a password behind it is.
_SSH_USER = r"(?!(?i:ssh)://[A-Za-z0-9._-]{1,32}@(?![^\s/?#\"']*@))"
_USERINFO_RE = re.compile(rf"\b{_SSH_USER}([A-Za-z][A-Za-z0-9+.-]{{1,30}}://)(?!\[redacted:userinfo\]@)[^\s/?#\"']+@")
_BEARER_RE = re.compile(r"\b(Bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_PRIVATE_KEY_RE = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
)
_SHAPE_RE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_.-]{20,}"  # Google
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"  # JWT
    r")"
)
_SHORTEST_SHAPE: Final = 15
"""Characters of the shortest token that ``_SHAPE_RE`` knows, Slack's."""
_JOINT_RE = re.compile(r"[=:\s]")
"""What every pattern but that of the shapes needs at least one of."""


def marker(name: str) -> str:
    """What stands in place of the secret called ``name``."""
    return f"[redacted:{name}]"


def is_secret_name(name: str) -> bool:
    """Whether a variable, flag or field of this name holds a secret, by the rules above."""
    words = [word.upper() for word in _SPLIT_RE.findall(name)]
    if not words or words[-1] in _HARMLESS_LAST_WORDS:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "KEY" and before and before not in _HARMLESS_KEYS:
        return True
    if last == "AUTH" or (last in _LAST_WORDS and before not in ("", "OLD")):
        return True
    return any(
        word in _WORDS
        or (word.endswith(_ENDINGS) and not (word == "TOKEN" and index > 0 and words[index - 1] in _HARMLESS_TOKENS))
        for index, word in enumerate(words)
    )


def redact_text(text: str) -> str:
    """Hide secrets inside a text.

    That is ``NAME=value`` and ``"name": value`` with a secret name, credentials in headers and URLs,
    private keys, and tokens of known shapes. Redacting twice changes nothing.
    """
    if _JOINT_RE.search(text) is None:  # most words of a command line: seven searches fewer
        return text if len(text) < _SHORTEST_SHAPE else _SHAPE_RE.sub(marker("token"), text)
    text = _PRIVATE_KEY_RE.sub(marker("private-key"), text)
    text = _USERINFO_RE.sub(rf"\1{marker('userinfo')}@", text)
    text = _HEADER_RE.sub(lambda match: f"{match[1]}{match[2]}{marker(match[1].lower())}", text)
    text = _BEARER_RE.sub(rf"\1{marker('token')}", text)
    text = _redact_assignments(text)
    return _SHAPE_RE.sub(marker("token"), text)


def redact_env(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment with its secrets hidden; names stay, and so does the order."""
    return {
        name: _hide(name, value) if is_secret_name(name) else redact_text(value) for name, value in environment.items()
    }


def redact_argv(argv: Sequence[str]) -> list[str]:
    """Copy a command line with its secrets hidden, word for word.

    Besides what ``redact_text`` finds in each word, the value after ``-e NAME`` and after a flag
    with a secret name (``--hf-token VALUE``) is hidden, and all that follows ``--hf-token=``.
    """
    result: list[str] = []
    hidden_name = ""
    previous = ""
    for word in argv:
        is_value = bool(hidden_name)
        result.append(_hide(hidden_name, word) if is_value else _redact_word(word, after_env=previous in _ENV_FLAGS))
        # A word that looks like a flag stays suspect even where it stands for a value: "--use-auth-token --key K".
        flag = _FLAG_RE.fullmatch(word) if word.startswith("-") else None
        named = flag[1] if flag is not None else word if previous in _ENV_FLAGS and not is_value else ""
        hidden_name = named if named and is_secret_name(named) and "=" not in named else ""
        previous = "" if is_value else word
    return result


def holds_secret(name: str, value: str) -> bool:
    """Whether this environment entry must be stored sealed."""
    return bool(value) and (is_secret_name(name) or redact_text(value) != value)


def _hide(name: str, value: str) -> str:
    return marker(name) if value else value


def _redact_word(word: str, after_env: bool) -> str:
    whole = _WHOLE_WORD_RE.fullmatch(word) if "=" in word else None
    if whole is not None and is_secret_name(whole[2]) and (after_env or whole[1] or not _has_blank(word)):
        return f"{whole[1]}{whole[2]}={_hide(whole[2], whole[3])}"
    return redact_text(word)


def _has_blank(text: str) -> bool:
    return any(character.isspace() for character in text)


def _redact_assignments(text: str) -> str:
    pieces: list[str] = []
    position = copied = 0
    while (found := _ASSIGNED_RE.search(text, position)) is not None:
        position = found.end()
        name = found[1] or found[3]
        if not is_secret_name(name):
            continue  # its value may hold an assignment of its own: sh -c 'A="TOKEN=x"'
        value = (_VALUE_RE if found[1] else _JSON_VALUE_RE).match(text, position)
        if value is None:
            continue
        quotes = found[2] or ""  # keeps JSON well formed, also where the value was a number
        pieces += [text[copied:position], quotes, marker(name), quotes]
        position = copied = value.end()
    pieces.append(text[copied:])
    return "".join(pieces)
