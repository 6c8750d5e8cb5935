"""Secrets: told by name, by value and by form; what is none stays as it is."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pandas as pd
import pytest

from nbtools.texts.redaction import RedactedOutput, conceal, conceal_start, is_secret_name, redact, scrub_environment
from nbtools.texts.secret_values import MASK

ATTACKS = Path(__file__).parents[1] / "attacks" / "secrets.jsonl"
SECRET = 'p/h&J7k "Q2m+Z'
JWT = "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTHROPIC_API_KEY", "x"),
        ("openai_api_key", "x"),
        ("GITHUB_TOKEN", "x"),
        ("PGPASSWORD", "x"),
        ("DB_PASSWD", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/bus"),
        ("DOCKER_HOST", "unix:///run/docker.sock"),
        ("SENTRY_DSN", "https://abc@sentry.example"),
        ("DATABASE_URL", "postgresql://me:pw@host/db"),
        ("HTTPS_PROXY", "http://user:secret@proxy:8080"),
        ("SETTING", "sk-proj-abcdefghijklmnopqrstuvwxyz"),
        ("SETTING", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("SETTING", "AKIAIOSFODNN7EXAMPLE"),
        ("SETTING", JWT),
        ("SETTING", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
        ("BASH_ENV", "/tmp/evil.sh"),
    ],
)
def test_secrets_and_doors_are_dropped(name, value):
    assert scrub_environment({name: value, "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/home/me"),
        ("LANG", "C.UTF-8"),
        ("VIRTUAL_ENV", "/venv"),
        ("PYTHONPATH", "/src"),
        ("LD_LIBRARY_PATH", "/opt/lib"),
        ("OMP_NUM_THREADS", "2"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("HTTP_PROXY", "http://proxy:8080"),
        ("DATABASE_URL", "postgresql://host/db"),
        ("GIT_AUTHOR_NAME", "me"),
        ("NODE_OPTIONS", "--max-old-space-size=100"),
    ],
)
def test_what_programs_need_stays(name, value):
    assert scrub_environment({name: value}) == {name: value}


def test_the_argument_is_not_changed():
    given = {"NBTOOLS_KEY": "1", "OTHER": "2"}
    assert scrub_environment(given) == {"OTHER": "2"}
    assert given == {"NBTOOLS_KEY": "1", "OTHER": "2"}


def test_nothing_forces_colours_on_a_child():
    given = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm"}
    assert scrub_environment(given) == {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("aws_secret_access_key", True),
        ("GATEWAY_TOKEN", True),
        ("DB_PASSWORD", True),
        ("GOOGLE_APPLICATION_CREDENTIALS", True),
        ("PATH", False),
        ("HOME", False),
    ],
)
def test_secret_names_are_told_by_their_words(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_values_of_secret_variables_are_masked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    monkeypatch.setenv("LONGER_TOKEN", "sk-12345678-and-more")
    given = {"a": "use sk-12345678 here", "b": ["sk-12345678-and-more", ("x", "sk-12345678")], "sk-12345678": 1, "n": 2}
    assert redact(given) == {"a": f"use {MASK} here", "b": [MASK, ("x", MASK)], MASK: 1, "n": 2}
    assert given["sk-12345678"] == 1, "the caller's values stay as they are"


def test_short_values_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "true")
    assert redact("true story") == "true story"


def test_a_secret_that_appears_or_changes_is_masked_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert redact("one-secret two-secret") == "one-secret two-secret"
    monkeypatch.setenv("SOME_API_KEY", "one-secret")
    assert redact("one-secret two-secret") == f"{MASK} two-secret"
    monkeypatch.setenv("SOME_API_KEY", "two-secret")
    assert redact("one-secret two-secret") == f"one-secret {MASK}"
    monkeypatch.delenv("SOME_API_KEY")
    assert redact("one-secret two-secret") == "one-secret two-secret"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("postgresql://me:hunter2@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me:p@ss@db/shop", "postgresql://me:***@db/shop"),
        ("postgresql://me@db/shop?password=hunter2&x=1", "postgresql://me@db/shop?password=***&x=1"),
        ("https://x.example/a?api_key=K1&page=2", "https://x.example/a?api_key=***&page=2"),
        ("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: Bearer ***' x"),
        ("curl -H 'X-Api-Key: abc' x", "curl -H 'X-Api-Key: ***' x"),
        ("tool --token abc --all", "tool --token *** --all"),
        ('client_secret = "a b c"\nx = 1', 'client_secret = "***"\nx = 1'),
        ('{"password": "hunter2", "n": 1}', '{"password": "***", "n": 1}'),
        ("CREATE SECRET s (TYPE s3, SECRET 'x')", "CREATE SECRET s (TYPE s3, SECRET '***')"),
        ("PRAGMA key='hunter2';", "PRAGMA key='***';"),
        ("SET s3_session_token TO 'hunter2'", "SET s3_session_token TO '***'"),
        ('assert password == "hunter2"', 'assert password == "***"'),
        ('if token != "hunter2": pass', 'if token != "***": pass'),
        ('password: Optional[str] = "hunter2"', 'password: Optional[str] = "***"'),
        ('password: str | None = "hunter2"', 'password: str | None = "***"'),
        ("password: aHVudGVyMg==", "password: ***"),
        ("curl -H 'Cookie: a=b; sid=hunter2' x", "curl -H 'Cookie: ***' x"),
        ("Driver={X};UID=sa;PWD=hunter2;", "Driver={X};UID=sa;PWD=***;"),
        ("Driver={X};UID=sa;Pwd={hunter;2}", "Driver={X};UID=sa;Pwd=***"),
    ],
)
def test_credentials_as_people_write_them_are_concealed(text: str, told: str) -> None:
    assert conceal({"deep": [text]}) == {"deep": [told]}


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8080/a@b",
        "postgresql://me:${PGPASS}@db/shop",
        "max_tokens=100, sort_key=a, key='penguins/note'",
        "the password is in the keyring; tokens are counted",
        "select token from words where n = 1",
        "import os\ntoken = next(tokens)",
    ],
)
def test_what_is_no_credential_is_told(text: str) -> None:
    assert conceal(text) == text


@pytest.mark.parametrize(
    ("kind", "text", "secret"),
    [tuple(json.loads(line).values()) for line in ATTACKS.read_text(encoding="utf-8").splitlines()],
)
def test_each_form_of_a_credential_is_concealed(kind: str, text: str, secret: str) -> None:
    for given in (text, f"before\n{text}\nafter", json.dumps({"body": text})):
        assert secret not in conceal({"deep": [given]})["deep"][0]


@pytest.mark.parametrize(
    "text",
    [
        "select key, value from t order by key",
        "df.sort_values('key')",
        "https://x.example/?page=2&sort=asc",
        '{"key": "penguins/note", "value": 3}',
        "Basic statistics of penguins",
        "Bearer certificates are old",
        "the secret of success: work hard",
        "{'key': 'customer_id'}",
        "the author: Jane Doe, keyword: x, tokenizer='bert'",
        "select 'a' as secret, 'b' as token",
        "x = df['token'], df['count']\nzip(['token', 'count'])",
        "from sklearn import sk_classifier_results; hf_hub_download_something",
        "for key in keys: print(key)",
        "conn_str_len = 5\nsubprocess.run(argv, pass_fds=fds, password_length=12)",
        '{"token_count": 512, "secret_bytes": "16"}',
        "token_type=bearer, cookie_domain=example.com, PASSWORD_FILE=/run/secrets/db",
    ],
)
def test_data_and_code_that_only_sound_secret_stay(text: str) -> None:
    assert conceal(text) == text


@pytest.mark.parametrize(
    "name",
    [
        *("MYSQL_PWD", "SMTP_PASS", "SLACK_WEBHOOK", "AZURE_SAS", "SSHPASS", "DB_PW", "APP_CREDS", "LDAP_BINDPASS"),
        *("AZURE_STORAGE_CONNECTION_STRING", "STRIPE_KEY", "SESSION_COOKIE", "MY_JWT", "TWINE_PASSWORD", "NPM_AUTH"),
        *("HASH_SALT", "CARD_PIN", "GIT_ASKPASS", "OTP", "WEBHOOK_URL", "PRIVATE", "ENCRYPTION_KEYS", "CLIENT_SECRET"),
    ],
)
def test_usual_names_of_secrets_are_kept_from_children(name: str) -> None:
    assert scrub_environment({name: "x", "PWD": "/here"}) == {"PWD": "/here"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SORT_KEY", "customer_id"),
        ("PARTITION_KEY", "created_at_2024"),
        ("API_KEY", "customer_id"),
        ("MAX_TOKENS", "400000"),
        ("PASSWORD", "12345678"),
        ("TOKEN_EXPIRES", "2026-11-23 10:00:00"),
        ("SSH_KEY", str(ATTACKS)),
        ("PASSWORD", "secret"),
        ("API_KEY", "abc12"),
        ("COOKIE_DOMAIN", "example.com"),
        ("CREDENTIALS_FILE", "/nowhere/creds.json"),
        ("SECRET_NAME", "my-app-prod"),
        ("API_KEY_HEADER", "X-Api-Key"),
        ("TOKEN_TYPE", "urn:ietf:jwt"),
        ("PASSWORD_POLICY", "min8,max64"),
    ],
)
def test_short_numeric_and_dictionary_like_values_spoil_no_data(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"select {value} from t") == f"select {value} from t"


def test_a_secret_under_a_name_that_tells_about_one_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_SECRET_ID", "hJ7kQ2mZx9LpW4vT")
    assert redact("id hJ7kQ2mZx9LpW4vT") == f"id {MASK}"


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "a-", "_a.", "docker login ", "curl ", "mysql ", "pat-", "sk-", "eyJaaaaa-", "password=(", "token=\\"),
        *("<token>x", "password: |\\n", 'name="key" ', "login a ", "Authorization: ", "Bearer ", "://a:"),
    ],
)
def test_long_texts_are_looked_through_in_time(piece: str) -> None:
    begun = time.thread_time()
    conceal("the key " + piece * (25_000 // len(piece)))
    assert time.thread_time() - begun < 3


def test_encoded_forms_of_known_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    raw = SECRET.encode()
    forms = {
        "plain": SECRET,
        "url": quote(SECRET),
        "path": quote(SECRET, safe=""),
        "form": quote_plus(SECRET),
        "json": json.dumps({"a": SECRET}),
        **{f"base64 {n}": base64.b64encode(b"u:"[:n] + raw + b" tail").decode() for n in (0, 1, 2)},
        "urlsafe": base64.urlsafe_b64encode(raw).decode(),
    }
    shown = {name: redact(text) for name, text in forms.items()}
    assert all(MASK in text for text in shown.values()), shown
    assert not any(SECRET in text for text in shown.values())


LONG = "hJ7kQ2mZx9/LpW4vT+q8ZkWm2LpT9vRx4NbC3dE5fG6hI8jK0lM1nO2pQ3rS4tU5vW6"


@pytest.mark.parametrize("secret", [f"{SECRET}'x9\\Lw", LONG])
@pytest.mark.parametrize(
    "write",
    [
        lambda s: f"https://x.example/?q={quote(s, safe='')}",
        lambda s: json.dumps({"a": [s]}),
        lambda s: base64.b64encode(b"before it " * 4 + s.encode()).decode(),
        lambda s: pd.DataFrame({"n": [s.replace('"', "")]}).to_csv() + s,
    ],
)
def test_a_known_secret_is_masked_as_accidents_write_it(
    secret: str, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", secret)
    shown = redact(f"see {write(secret)} there")
    assert MASK in shown
    assert secret not in shown
    assert shown.startswith("see ")
    assert shown.endswith(" there")


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("GCP_CREDENTIALS", json.dumps({"type": "service", "private_key": LONG[:30]}), LONG[:30]),
        ("APP_SETTINGS", json.dumps({"type": "service", "client_secret": "horse-9-battery"}), "horse-9-battery"),
        ("STORAGE", f"Protocol=https;AccountName=me;AccountKey={LONG[:30]};Suffix=example.net", LONG[:30]),
    ],
)
def test_a_secret_inside_of_a_value_is_masked_alone(
    name: str, value: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"it is {part} today") == f"it is {MASK} today"
    assert scrub_environment({name: value}) == {}
    assert redact("Protocol https, service, example.net, me") == "Protocol https, service, example.net, me"


def test_words_and_numbers_in_a_row_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hello world")
    monkeypatch.setenv("OTHER_PASSWORD", "12-34-56-78-90-12-34-56")
    assert redact("a hello-world program, HelloWorld(); 1234567890123456") == (
        "a hello-world program, HelloWorld(); 1234567890123456"
    )


def test_the_password_of_a_url_in_the_environment_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:s3cr3t-word@db.example/shop")
    assert redact("connecting to shop with s3cr3t-word") == f"connecting to shop with {MASK}"


def test_a_secret_cut_by_the_pieces_of_a_stream_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    text = "key sk-12345678, sk-1 and sk-12345678"
    for size in range(1, len(text)):
        shown: list[tuple[str, str, None]] = []
        output = RedactedOutput(lambda *piece, shown=shown: shown.append(piece))
        for i in range(0, len(text), size):
            output("stdout", text[i : i + size])
        output.end()
        assert "".join(piece for _, piece, _ in shown) == f"key {MASK}, sk-1 and {MASK}"


def test_output_without_the_beginning_of_a_secret_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    shown: list[tuple] = []
    output = RedactedOutput(lambda *piece: shown.append(piece))
    output("stdout", "hello\n")
    output("display", "", {"text/plain": "sk-12345678"})
    output("stderr", "ends with sk-")
    assert shown == [("stdout", "hello\n", None), ("display", "", {"text/plain": MASK}), ("stderr", "ends with ", None)]
    output.end()
    assert shown[-1] == ("stderr", "sk-", None)


def test_named_entries_of_mappings_are_concealed() -> None:
    given = {"headers": {"X-Api-Key": "abc", "Accept": "*/*"}, "pwd": "x", "key": "note", "password": ""}
    assert conceal(given) == {
        "headers": {"X-Api-Key": MASK, "Accept": "*/*"},
        "pwd": MASK,
        "key": "note",
        "password": "",
    }


def test_a_name_that_only_measures_a_secret_keeps_its_value() -> None:
    assert conceal({"token_count": 5, "pass_fds": (3,), "token": 5}) == {
        "token_count": 5,
        "pass_fds": (3,),
        "token": "***",
    }
    # What such a variable holds may be a secret all the same, and then it looks like one.
    assert conceal("x-token-count: q8ZkWm2LpT9vRx4N") == "x-token-count: ***"


def test_a_text_is_cut_after_as_many_characters_as_it_may_have_and_says_how_many_it_had() -> None:
    assert [conceal_start("abcd", most) for most in (5, 4)] == ["abcd", "abcd"]
    assert conceal_start("abcde", 4) == "abcd… (5 characters)"
    # A secret that begins before the cut is masked whole, though its end would be cut off.
    text = "x" * 10 + " sk-ant-api03-" + "a1B2" * 10
    assert "sk-ant" not in conceal_start(text, 20)
