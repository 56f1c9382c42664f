"""`cluster init-keys`, and the controller that signs with the key it made."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from iris_controller.boot import BootFailed, signing_key
from iris_core.auth.keys import KeyFileError, create_key, key_of, load_key, load_public_key, replace_key
from iris_core.config.cluster import parse_config
from tests.unit.cli_world import Done, World

FILE = "name: lab\nplatform: {{local: }}\nauth: {{signing_key: {0}}}\n"


def init_keys(*words: str) -> Done:
    return World().cli("cluster", "init-keys", *words)


def test_without_a_file_a_new_key_is_printed_each_time() -> None:
    first, second = init_keys(), init_keys()
    key = key_of(first.out.partition("kid: ")[0].encode(), "there")
    assert f"kid: {key.kid}\n{key.public_pem()}" in first.out and first.out != second.out
    assert init_keys("--rotate").code == 2


def test_a_file_is_its_owners_alone_and_never_replaced_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    made = init_keys("--out-file", str(path))
    assert made.code == 0 and path.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in made.out + made.err and f"signing_key: file:{path}" in made.err
    first = load_key(path)
    again = init_keys("--out-file", str(path))
    assert again.out == made.out and "--rotate replaces it" in again.err
    rotated = init_keys("--out-file", str(path), "--rotate")
    assert rotated.code == 0 and load_key(path).kid != first.kid
    assert load_key(tmp_path / f"signing.key.{first.kid}").kid == first.kid, "the one before is kept"
    path.chmod(0o644)
    refused = init_keys("--out-file", str(path))
    assert refused.code == 1 and "can be read by others" in refused.err
    path.write_text("nothing of the kind")
    path.chmod(0o600)
    for words in ((), ("--rotate",)):
        assert "not a private key" in init_keys("--out-file", str(path), *words).err
    assert path.read_text() == "nothing of the kind"
    assert init_keys("--out-file", str(tmp_path / "no" / "key")).code == 1


class Killed(BaseException):
    """The program is gone."""


STEPS = ("link", "replace", "unlink", "fsync", "fchmod", "open")


@pytest.mark.parametrize("after", [False, True])
def test_a_rotation_that_is_killed_anywhere_leaves_a_key_in_the_file_and_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    done_at = 0
    for die_at in range(60):
        folder = tmp_path / str(die_at)
        folder.mkdir()
        path = folder / "signing.key"
        first = create_key(path)
        count = 0

        def dying(real: Callable[..., Any], die_at: int = die_at) -> Callable[..., Any]:
            def call(*words: Any, **more: Any) -> Any:
                nonlocal count
                count += 1
                if count - 1 == die_at and not after:
                    raise Killed
                said = real(*words, **more)
                if count - 1 == die_at:
                    raise Killed
                return said

            return call

        with monkeypatch.context() as patched:
            for name in STEPS:
                patched.setattr(os, name, dying(getattr(os, name)))
            try:
                replace_key(path)
                done_at = die_at
            except Killed:
                pass
        now = load_key(path)
        kept = folder / f"signing.key.{first.kid}"
        assert now.kid == first.kid or load_key(kept).kid == first.kid, f"the first key is lost at step {die_at}"
        again, before = replace_key(path)
        assert load_key(path).kid == again.kid and load_key(before).kid == now.kid
        assert load_key(kept).kid == first.kid
        if done_at:
            break
    assert done_at > 6


def test_two_that_rotate_at_once_replace_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    first = create_key(path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: replace_key(path), range(8)))
    kids = {key.kid for key, _ in made} | {first.kid}
    assert len(kids) == 9 and load_key(path).kid in kids
    there = {load_key(found).kid for found in tmp_path.glob("signing.key*")}
    assert there == kids, "each is kept"


def test_what_stands_where_the_old_key_is_kept_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    first = create_key(path)
    (tmp_path / f"signing.key.{first.kid}").write_text("something else")
    done = init_keys("--out-file", str(path), "--rotate")
    assert done.code == 1 and "is there already" in done.err and load_key(path).kid == first.kid
    assert init_keys("--out-file", str(tmp_path / "fresh.key"), "--rotate").code == 0, "there is none to replace"


def test_a_controller_signs_with_the_key_that_its_file_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "signing.key"
    init_keys("--out-file", str(path))
    state = tmp_path / "state"
    state.mkdir()
    assert signing_key(parse_config(FILE.format(f"file:{path}")), state).kid == load_key(path).kid
    assert not (state / "signing.key").exists()
    both = parse_config(FILE.format(f"[env:IRIS_SIGNING_KEY, 'file:{path}']"))
    assert signing_key(both, state).kid == load_key(path).kid
    other = init_keys().out.partition("kid: ")[0]
    monkeypatch.setenv("IRIS_SIGNING_KEY", other)
    assert signing_key(both, state).kid == key_of(other.encode(), "there").kid, "the first that can be had counts"
    with pytest.raises(BootFailed, match=r"auth\.signing_key cannot be had here: the environment has no OTHER"):
        signing_key(parse_config(FILE.format("env:OTHER")), state)
    made = signing_key(parse_config("name: lab\nplatform: {local: }\n"), state)
    assert made.kid == load_key(state / "signing.key").kid


def test_the_public_half_of_the_key_before_is_listed_while_its_tokens_last() -> None:
    key = key_of(init_keys().out.partition("kid: ")[0].encode(), "there")
    text = "name: lab\nplatform: {local: }\nauth:\n  previous_public_keys:\n    - |\n"
    config = parse_config(text + "".join(f"      {line}\n" for line in key.public_pem().splitlines()))
    (pem,) = config.previous_public_keys
    assert load_public_key(pem) == key.public
    with pytest.raises(KeyFileError, match="not in PEM form"):
        load_public_key("x")
