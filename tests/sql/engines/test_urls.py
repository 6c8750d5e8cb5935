"""URLs of databases: secrets stay hidden, variables and the keyring fill them in."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from nbtools.errors import ConfigInvalid, ConfigMissing, MissingExtra, NetworkError
from nbtools.sql import SqlSession
from nbtools.sql.connections import open_engine
from nbtools.sql.engines.protocol import EngineOptions
from nbtools.sql.engines.urls import file_of, mask_url, resolve_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me:se/cr@et@host:5/db", "postgresql://me:***@host:5/db"),
        ("snowflake://u:p@acc/db?token=abc&role=r", "snowflake://u:***@acc/db?token=***&role=r"),
        ("trino://host?password=x", "trino://host?password=***"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("shop", "shop"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_variables_fill_in_and_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBTOOLS_TEST_PW", "p@ss/word")
    assert resolve_url("postgresql://me:${NBTOOLS_TEST_PW}@h/db") == "postgresql://me:p%40ss%2Fword@h/db"
    monkeypatch.delenv("NBTOOLS_TEST_PW")
    with pytest.raises(ConfigMissing, match="NBTOOLS_TEST_PW"):
        resolve_url("postgresql://me:${NBTOOLS_TEST_PW}@h/db")


def test_the_keyring_fills_in_a_missing_password(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = types.ModuleType("keyring")
    ring.get_password = lambda service, user: "found" if (service, user) == ("nbtools:h", "me") else None
    ring.errors = types.SimpleNamespace(KeyringError=RuntimeError)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    assert resolve_url("postgresql://me@h:5432/db") == "postgresql://me:found@h:5432/db"
    assert resolve_url("postgresql://other@h/db") == "postgresql://other@h/db"
    assert resolve_url("postgresql://me:own@h/db") == "postgresql://me:own@h/db"


def test_files_are_relative_or_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_of("sqlite:///a/b.db") == tmp_path / "a" / "b.db"
    assert file_of(f"sqlite:///{tmp_path}/b.db") == tmp_path / "b.db"
    assert file_of("duckdb:///a%20b.db?x=1") == tmp_path / "a b.db"
    for url in ("sqlite://", "sqlite:///", "sqlite://host/file"):
        with pytest.raises(ConfigInvalid):
            file_of(url)


def test_a_server_that_is_not_there_never_shows_the_password() -> None:
    with SqlSession() as session, pytest.raises(NetworkError) as caught:
        session.query("select 1", connection="postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)
    assert "me:***@127.0.0.1" in caught.value.message


def test_an_unknown_kind_of_database_names_its_driver() -> None:
    with pytest.raises(MissingExtra) as caught:
        open_engine("snowflake://me:secret@account/db", EngineOptions(), isolated=False)
    assert caught.value.hint == "pip install snowflake-sqlalchemy"
    assert "secret" not in str(caught.value)
    with pytest.raises(MissingExtra):
        open_engine("nosuchdb://host/db", EngineOptions(), isolated=False)
