"""SQL over URLs: files of the web and of object stores, fetched behind the guard, once while they stay the same."""

from __future__ import annotations

import http.server
import importlib.util
import json
import threading
from pathlib import Path

import pytest

from nbtools import Workbench
from nbtools.contract.tool import ToolCall
from nbtools.errors import (
    CallTimeout,
    FileMissing,
    HttpError,
    InvalidArguments,
    LimitExceeded,
    NetworkError,
    PermissionDenied,
    SqlInvalid,
    SqlNotAllowed,
)
from nbtools.sql import SqlSession
from nbtools.toolbox.web.downloads import Downloads
from tests.conftest import stop_query

pytestmark = pytest.mark.processes


@pytest.fixture
def session(tmp_path):
    downloads = Downloads(tmp_path / "kept", allow_private=True, most_bytes=500_000)
    with SqlSession(downloads=downloads) as opened:
        yield opened


def test_a_file_of_the_web_is_read_like_one_of_this_machine(session, site):
    found = session.query(f"from '{site}/table.csv' order by n")
    assert found.to_rows() == [["a", 1], ["b", 2]]
    assert found.sources == (f"file {site}/table.csv",)
    by_type = session.query(f"select sum(t.n) from '{site}/table' t join '{site}/table.csv' u using (city)")
    assert by_type.to_rows() == [[3]]
    assert session.query(f"select count(*) from read_csv('{site}/table', header = false)").to_rows() == [[3]]


def test_a_file_that_stays_the_same_comes_once(session, site, tmp_path):
    sql = f"select n from '{site}/table.csv' where city = 'a'"
    assert [session.query(sql).to_rows() for _ in range(3)] == [[[1]]] * 3
    assert [headers.get("If-None-Match") for _, _, headers, _ in site.hits] == [None, '"1"', '"1"']
    first = session.query(sql)
    site.change()
    assert session.query(sql).to_rows() == [[2]]
    # What was read before can be read on.
    assert session.query(first.sql).to_rows() == [[1]]
    assert not list((tmp_path / "kept").glob("*.part"))


def test_text_that_is_no_file_stays_as_it_is(session, site):
    found = session.query(f"select '{site}/table.csv' as u, '{site}/x' in ('{site}/x') as i")
    assert found.to_rows() == [[f"{site}/table.csv", True]]
    assert site.hits == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/status?code=404", HttpError),
        ("/endless", LimitExceeded),
        ("/bomb", LimitExceeded),
        ("/cut", NetworkError),
        ("/circle", LimitExceeded),
        ("/redirect?to=http://169.254.169.254/x.csv", PermissionDenied),
        ("/redirect?to=file:///etc/passwd", PermissionDenied),
        ("/status?code=204", NetworkError),
    ],
)
def test_what_cannot_be_had_says_why_and_leaves_nothing(session, site, tmp_path, path, kind):
    with pytest.raises(kind):
        session.query(f"select * from read_csv('{site}{path}')")
    assert not list((tmp_path / "kept").iterdir())


def test_an_answer_without_a_file_is_told_by_its_number(session, site):
    with pytest.raises(NetworkError, match="was answered by 204 and no file"):
        session.query(f"select * from read_csv('{site}/status?code=204')")


def test_private_addresses_are_refused_unless_they_are_allowed(site, tmp_path):
    with SqlSession(downloads=Downloads(tmp_path / "kept")) as session, pytest.raises(PermissionDenied):
        session.query(f"from '{site}/table.csv'")
    assert site.hits == []


def test_a_file_without_end_ends_with_the_time_of_the_query_or_by_stop(session, site):
    with pytest.raises(CallTimeout):
        session.query(f"from '{site}/drip'", timeout=0.3)
    stop_query(session, f"from '{site}/drip'")


@pytest.mark.parametrize("length", [1, 20, 60, 80, 100, 120, 200])
def test_errors_name_the_url_and_not_the_copy_wherever_it_lies(site, tmp_path, length):
    """A long line of the query is cut around the place, in the midst of a path perhaps."""
    kept = tmp_path / ("k" * length)
    with SqlSession(downloads=Downloads(kept, allow_private=True)) as session:
        for sql in ("select nowhere from '{}'", "delete from '{}'", "from '{}'; drop table x", "select getenv('{}')"):
            for text in (sql, f"{sql} where"):
                with pytest.raises((SqlInvalid, SqlNotAllowed)) as caught:
                    session.query(text.format(f"{site}/table.csv"))
                assert str(tmp_path.parent) not in str(caught.value.to_dict())


def test_errors_tell_no_secret_of_a_url(session):
    for bad in ("http://me:secret@127.0.0.1/x.csv", "s3:///x.csv", "s3://bucket/../x.csv", "s3://bucket/*.csv"):
        with pytest.raises(InvalidArguments) as wrong:
            session.query(f"from '{bad}'")
        assert "secret" not in str(wrong.value.to_dict())


def test_a_text_is_judged_without_fetching(session, site, tmp_path):
    for sql, allowed in (
        (f"from '{site}/table.csv'", True),
        (f"from read_parquet(['{site}/a.parquet', '{site}/b.parquet'])", True),
        (f"from '{site}/shop.db'", False),
        (f"delete from '{site}/table.csv'", False),
    ):
        verdict = session.check(sql)
        assert verdict.allowed is allowed, sql
    assert session.names_read(session.check(f"from t cross join '{site}/table.csv'")) == ("t", f"{site}/table.csv")
    assert site.hits == []
    assert list((tmp_path / "kept").iterdir()) == []
    session.query(f"from '{site}/table.csv'")
    hits = len(site.hits)
    assert session.check(f"from '{site}/table.csv'").allowed
    assert len(site.hits) == hits
    with SqlSession(downloads=Downloads(tmp_path / "models", places=[f"{site}/table.csv"])) as model:
        assert model.check(f"from '{site}/table.csv'", isolated=True).allowed
        with pytest.raises(PermissionDenied):
            model.check(f"from '{site}/other.csv'", isolated=True)
    assert len(site.hits) == hits


def test_a_model_reads_only_below_the_places_of_the_settings(site, tmp_path):
    refused = "is a URL; only local files are read"
    own = Downloads(tmp_path / "own", allow_private=True)
    with SqlSession(downloads=own) as person:
        kept = person.query(f"from '{site}/table.csv'").sql.partition("'")[2].rstrip("'")
        for place, why in ((f"{site}/table.csv", refused), (kept, "no folder is allowed|outside the allowed folders")):
            with pytest.raises(SqlNotAllowed, match=why):
                person.query(f"from '{place}'", isolated=True)
    places = Downloads(
        tmp_path / "models", allow_private=True, places=[f"{site}/table.csv", f"{site}/redirect?to=/page"]
    )
    with SqlSession(downloads=places) as model:
        assert model.query(f"from '{site}/table.csv' where n = 2", isolated=True).to_rows() == [["b", 2]]
        for url in (f"{site}/table", f"{site}/table.csv2", f"{site}/redirect/../table", f"{site}/redirect?to=/page"):
            with pytest.raises(PermissionDenied):
                model.query(f"from '{url}'", isolated=True)
    assert site.hits[-1][1] == "/redirect?to=/page"


def test_what_was_used_longest_ago_makes_room(site, tmp_path):
    downloads = Downloads(tmp_path / "kept", allow_private=True, kept_bytes=200)
    paths = [downloads.get(f"{site}/table.csv?v={number}", seconds=5) for number in range(8)]
    assert paths[-1].exists()
    assert not paths[0].exists()
    assert sum(path.stat().st_size for path in (tmp_path / "kept").iterdir()) <= 400
    assert downloads.get(f"{site}/table.csv?v=0", seconds=5).read_text().startswith("city,n")


@pytest.fixture(scope="module")
def stores():
    """Stand-ins for two object stores, and the variables that lead to them."""
    from moto.server import ThreadedMotoServer

    place = Path(__file__).parents[1] / "memory" / "files" / "gcs_stand_in.py"
    spec = importlib.util.spec_from_file_location("gcs_stand_in", place)
    gcs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gcs)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with gcs.serving() as (address, _):
        key = {"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": ""}
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key | {"private_key_id": ""}),
        }
    server.stop()


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_objects_of_a_store_are_files_too(stores, scheme, session, tmp_path, monkeypatch):
    import obstore
    import requests
    from obstore.store import from_url

    for name, value in stores.items():
        monkeypatch.setenv(name, value)
    if scheme == "s3":
        assert requests.put(f"{stores['AWS_ENDPOINT_URL']}/bucket", timeout=10).ok
    store = from_url(f"{scheme}://bucket", client_options={"allow_http": True})
    obstore.put(store, "sales/may.csv", b"city,n\na,1\nb,2\n")
    sql = f"select sum(n) from '{scheme}://bucket/sales/may.csv'"
    found = session.query(sql)
    assert (found.to_rows(), found.sources) == ([[3]], (f"file {scheme}://bucket/sales/may.csv",))
    kept = sorted((tmp_path / "kept").glob("*.csv"))
    assert session.query(sql).to_rows() == [[3]]
    assert sorted((tmp_path / "kept").glob("*.csv")) == kept
    obstore.put(store, "sales/may.csv", b"city,n\na,10\n")
    assert session.query(sql).to_rows() == [[10]]
    with pytest.raises(FileMissing, match="does not exist"):
        session.query(f"from '{scheme}://bucket/sales/june.csv'")
    obstore.put(store, "large.csv", b"n\n" + b"1\n" * 300_000)
    with pytest.raises(LimitExceeded):
        session.query(f"from '{scheme}://bucket/large.csv'")


class _Store(http.server.BaseHTTPRequestHandler):
    """A store that says of one object that it is shorter than it is, and knows no account for another."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of each answer waits 40 ms for a receipt of its head

    def do_HEAD(self) -> None:
        is_refused = "expired" in self.path
        self._head(403 if is_refused else 200, 0 if is_refused else 7)

    def do_GET(self) -> None:
        self._head(200, len(_LONGER))
        self.wfile.write(_LONGER)

    def _head(self, status: int, size: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_LONGER = b"city,n\na,1\nb,2\n"


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("longer.csv", NetworkError, "has 7 bytes, and 15 came"),
        ("expired.csv", PermissionDenied, "its token may have expired"),
    ],
)
def test_a_store_that_lies_or_refuses_is_told(session, tmp_path, monkeypatch, name, kind, said):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    for variable, value in (("ALLOW_HTTP", "true"), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
        monkeypatch.setenv(f"AWS_{variable}", value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    try:
        with pytest.raises(kind) as caught:
            session.query(f"from 's3://bucket/{name}'")
    finally:
        server.shutdown()
        server.server_close()
    assert said in f"{caught.value} {caught.value.hint}"
    assert not list((tmp_path / "kept").iterdir())


def test_a_workbench_reads_urls_for_the_person_and_shows_all_rows(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Workbench(home=tmp_path / "home", allow_private=True) as wb:
        assert wb.sql(f"select count(*) as n from '{site}/table.csv'")["n"].tolist() == [2]
        with wb.sql_session.open_pages(f"'{site}/table.csv'") as pages:
            assert pages.row_count == 2
        refused = wb.tools.sql_query(sql=f"from '{site}/table.csv'")
        assert not refused.ok


@pytest.mark.parametrize(
    "name", ["..%2Ftable.csv", "..%5ctable.csv", "%2e%2e/table.csv", "..;/table.csv", "..%3bx/table.csv"]
)
def test_an_escaped_way_up_is_not_below_a_place(site, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    settings = {"home": tmp_path / "home", "memory_url": ":memory:", "sql_places": [f"{site}/pub/"]}
    with Workbench(allow_private=True, **settings) as wb:
        call = ToolCall(tool="sql_query", arguments={"query": f"from '{site}/pub/{name}'"}, caller="model")
        refused = wb.executor.call(call)
    assert "not below the places" in refused.error.message
