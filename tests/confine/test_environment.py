import pytest

from nbtools.confine import scrub_environment

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


def test_named_variables_are_kept_and_the_argument_is_not_changed():
    given = {"NBTOOLS_KEY": "1", "OTHER_KEY": "2"}
    assert scrub_environment(given, keep=["NBTOOLS_KEY"]) == {"NBTOOLS_KEY": "1"}
    assert given == {"NBTOOLS_KEY": "1", "OTHER_KEY": "2"}


def test_nothing_forces_colours_on_a_child():
    given = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm"}
    assert scrub_environment(given) == {"TERM": "xterm"}
