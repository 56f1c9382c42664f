"""Secrets: what counts as one, and that its value is gone from every form it comes in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.redact import holds_secret, is_secret_name, marker, redact_argv, redact_env, redact_text

CANARY = "c4n4ry-V4lue"
SECRET_NAMES = [
    "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "githubToken", "hf-token", "PASSWORD", "DB_PASS", "MYSQL_PWD",
    "OPENAI_KEY", "wandb.api_key", "apikey", "HFTOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "NPM_AUTH", "GITHUB_PAT",
    "PASSWORD2", "VAULT_SECRET_ID", "SENTRY_DSN", "IRIS_TOKEN", "SSH_PASSPHRASE", "access-token",
]  # fmt: skip
HARMLESS_NAMES = [
    "PATH", "PWD", "OLDPWD", "MAX_TOKENS", "tokens_per_batch", "TOKENIZERS_PARALLELISM", "tokenizer", "PAD_TOKEN",
    "pad_token_id", "PUBLIC_KEY", "KEY", "text-key", "SORT_KEY", "AWS_ACCESS_KEY_ID", "TOKEN_FILE", "PASSWORD_PATH",
    "monkey", "BYPASS", "PATTERN", "SSH_AUTH_SOCK", "AUTHOR", "COMPASS", "", "-", "_", "9",
]  # fmt: skip
NAMES = st.sampled_from(SECRET_NAMES)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["a b ", "'", '"', "\\", "-", "=", "a\n"]
)
VALUES = st.tuples(ANY, ANY).map(CANARY.join)
PLAIN_VALUES = st.from_regex(r"[A-Za-z0-9+/_.:,@%-]{0,20}", fullmatch=True).map(lambda text: f"{CANARY}{text}")


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)
    assert is_secret_name(name.lower())


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_harmless_names(name: str) -> None:
    assert not is_secret_name(name)


@given(NAMES, VALUES)
def test_environment_values_go_and_names_stay(name: str, value: str) -> None:
    hidden = redact_env({"A": "1", name: value, "Z": "z"})
    assert hidden == {"A": "1", name: marker(name), "Z": "z"}
    assert holds_secret(name, value)
    assert not holds_secret("A", "1") and not holds_secret(name, "")


@given(NAMES, VALUES)
def test_every_argv_form_is_hidden(name: str, value: str) -> None:
    argv = ["job", "run", "-e", name, value, "--env-vars", name, value, f"--{name}={value}", f"--{name}", value,
            "-e", f"{name}={value}", "--", "python", "x.py"]  # fmt: skip
    hidden = redact_argv(argv)
    assert len(hidden) == len(argv)
    assert CANARY not in "\n".join(hidden)
    assert hidden[:4] == argv[:4] and hidden[-3:] == argv[-3:]
    assert redact_argv(hidden) == hidden


@given(NAMES, PLAIN_VALUES)
def test_secrets_inside_text_are_hidden(name: str, value: str) -> None:
    for text in (
        f"{name}={value} python train.py",
        f"export {name}='{value} {value}'; run",
        f'A="{name}={value}"',
        f'{name}="{value}',
        f'{name}="a\\"{value}"',
        f"{name}=a\\ {value}",
        f"https://host/path?x=1&{name}={value}&y=2",
        json.dumps({"a": 1, name: value}),
        json.dumps({name: f'"{value}'}),
        f"CFG={json.dumps({'in': {name: value}})}",
        f"curl -H 'Authorization: Basic {value}' x",
        f"git clone https://me:{value.replace('/', '_')}@host/repo",
        f"-----BEGIN RSA PRIVATE KEY-----\n{value}\n-----END RSA PRIVATE KEY----- after",
        f"-----BEGIN PRIVATE KEY-----\n{value}",
    ):
        hidden = redact_text(text)
        assert CANARY not in hidden, text
        assert redact_text(hidden) == hidden
        assert CANARY not in "".join(redact_argv(["sh", "-c", text]))


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "aB3" * 11,
        "ghp_" + "aB3" * 12,
        "github_pat_" + "aB3_" * 8,
        "sk-proj-" + "aB3" * 10,
        "xoxb-" + "123-" * 5 + "abc",
        "AIza" + "aB3" * 12,
        "ya29." + "aB3" * 10,
        "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0xx.c2lnbmF0dXJlc2ln",
    ],
)
def test_known_shapes_are_hidden_anywhere(token: str) -> None:
    assert redact_text(f"x {token}, y") == "x [redacted:token], y"
    assert redact_argv(["--thing", token]) == ["--thing", "[redacted:token]"]
    assert holds_secret("THING", token)
    assert redact_text(f"Bearer {token}") == "Bearer [redacted:token]"


def test_ordinary_command_lines_are_left_alone() -> None:
    argv = [
        "python", "-m", "train", "--lr=3e-4", "--max-tokens", "4096", "--tokenizer=gpt2", "--text-key=body", "-e", "NAME",
        "value", "gs://bucket/path?x=1", "https://host:8080/a@b", "bash", "-c", "A=1 B='two words' run --key value; exit 3",
        '{"lr": 0.1, "tokens": 5}', "user@host", "", "=", "x==y",
    ]  # fmt: skip
    assert redact_argv(argv) == argv


def test_a_flag_that_stands_for_a_value_still_guards_the_next_word() -> None:
    assert redact_argv(["--use-auth-token", "--api-key", CANARY, "x"])[2:] == ["[redacted:api-key]", "x"]


def test_redacted_json_is_still_json() -> None:
    text = json.dumps({"api_key": 5, "password": 'a"b', "n": [1, 2]})
    assert json.loads(redact_text(text)) == {
        "api_key": "[redacted:api_key]",
        "password": "[redacted:password]",
        "n": [1, 2],
    }


@given(
    st.lists(
        st.sampled_from(
            ["xoxb-0123456789", "xoxp-012345678", "hf_0123456789abcdef", "ya29.", "-", ".", "--key", "a", "'"]
        )
        | st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"], exclude_characters="=:"), max_size=8),
        max_size=4,
    ).map("".join)
)
def test_a_word_alone_is_judged_as_within_a_text(word: str) -> None:
    # A blank sends the text through every pattern there is.
    assert f"{redact_text(word)} =" == redact_text(f"{word} =")


@given(st.text(alphabet="TOKEN_key=\"'\\:@/? {}a-[]\n", max_size=60) | st.text(max_size=60))
def test_redaction_is_total_and_stable(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once
    assert len(redact_argv([text, text])) == 2


@pytest.mark.parametrize(
    "piece", ["a=", "TOKEN=", "a://", '"a":', "TOKEN='", "-----BEGIN PRIVATE KEY-----", "hf_", "a@"]
)
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    redact_text(piece * 100_000)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("no answer from ssh://root@10.0.0.7/127.0.0.1:10000", False),
        ("ssh://ops@h1.example/srv/iris", False),
        ("SSH://a.user-1@h", False),
        ("ssh://root:hunter2@h1/srv", True),
        ("ssh://root%3Ahunter2@h1/srv", True),
        ("ssh://root@hunter2@h1", True),
        (f"ssh://{'a' * 33}@h1", True),
        ("https://root@h1", True),
    ],
)
def test_who_connects_by_ssh_is_said_and_with_what_is_not(text: str, hidden: bool) -> None:
    said = redact_text(f"{text} and ssh://root@h2")
    assert said.endswith(" and ssh://root@h2") and "hunter2" not in said
    assert ("[redacted:userinfo]" in said) == hidden and redact_text(said) == said
