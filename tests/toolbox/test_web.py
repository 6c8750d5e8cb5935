import base64
import json
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from nbtools.contract.approval.gate import rules_from_config
from nbtools.errors import InvalidArguments
from nbtools.toolbox import WebPolicy
from nbtools.toolbox.web.address import checked_url
from nbtools.toolbox.web.page import charset_of, decode, read_page
from nbtools.toolbox.web.web_tools import TOOLS
from tests.conftest import wait_until
from tests.toolbox.conftest import get

pytestmark = pytest.mark.processes

# Codecs of Python that no document has: quadratic ones, and those that make something else of a text.
SLOW_OR_STRANGE = json.loads((Path(__file__).parents[1] / "attacks" / "charsets.json").read_text())


def test_a_page_is_read_as_text(call, site):
    result = call("web_scrape", url=f"{site}/page")
    assert result.data["url"] == f"{site}/page"
    assert result.data["title"] == "The page"
    assert "One two three." in result.data["content"]
    assert "evil" not in result.data["content"]
    assert result.data["extracted_text"] == result.data["content"]
    assert "Zürich" in result.text
    assert result.text.startswith("The page")


def test_code_keeps_its_lines_and_a_page_says_its_own_charset(call, site):
    assert call("web_scrape", url=f"{site}/code").data["content"] == "日本\n\nif a:\n    b()"
    assert "日本" in get(call, f"{site}/code").data["body"]


def test_a_redirect_may_hold_utf8(call, site):
    assert get(call, f"{site}/unescaped").data["url"] == f"{site}/page?caf%C3%A9"


def test_a_selector_picks_out_its_elements(call, site):
    data = call.data("web_scrape", url=f"{site}/page", selector="p.a, h1")
    assert data["extracted_text"] == "Hello\n\nOne two three."
    assert data["matches"] == 2
    nothing = call("web_scrape", url=f"{site}/page", selector="p.z")
    assert (nothing.data["extracted_text"], nothing.data["matches"]) == ("", 0)
    assert "nothing on the page matches" in nothing.text


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        ("p[", "INVALID_ARGUMENTS"),
        ("p:nonsense", "INVALID_ARGUMENTS"),
        ("", "INVALID_ARGUMENTS"),
        ("p:has(a:has(b:has(c:has(d:has(e)))))", "LIMIT_EXCEEDED"),
        ("p" * 1000, "LIMIT_EXCEEDED"),
    ],
)
def test_a_wrong_selector_says_so(call, site, selector, code):
    assert call.code("web_scrape", url=f"{site}/page", selector=selector) == code


def test_redirects_are_followed_and_the_last_address_told(call, site):
    result = get(call, f"{site}/redirect?to=/redirect?to=/page")
    assert result.data["url"] == f"{site}/page"
    assert result.data["status_code"] == 200
    assert call.code("http_client", method="GET", url=f"{site}/circle") == "LIMIT_EXCEEDED"
    assert len([hit for hit in site.hits if hit[1] == "/circle"]) == 9


@pytest.mark.parametrize(("name", "more"), [("web_scrape", {}), ("http_client", {"method": "GET"})])
@pytest.mark.parametrize(
    "policy",
    [
        [{"action": "deny", "arguments": {"url": "{site}/page"}}, "allow"],
        [{"action": "allow", "arguments": {"url": "{site}/redirect*"}}, "ask"],
    ],
)
def test_a_redirect_leads_nowhere_that_a_rule_forbids(call, site, name, more, policy):
    written = json.loads(json.dumps(policy).replace("{site}", str(site)))
    call.executor.door.rules = rules_from_config({name: written})
    result = call(name, url=f"{site}/redirect?to=/redirect?to=/x/../page", **more)
    assert (result.error.code, f"{site}/page" in result.text) == ("PERMISSION_DENIED", True)
    assert [path for _, path, *_ in site.hits] == ["/redirect?to=/redirect?to=/x/../page", "/redirect?to=/x/../page"]


def test_the_body_of_a_redirect_is_not_read(call, site):
    assert get(call, f"{site}/redirect_endless").data["status_code"] == 200


@pytest.mark.parametrize(("code", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
def test_a_redirected_post_becomes_what_the_status_says(call, site, code, method):
    url = f"{site}/redirect?code={code}&to=/echo"
    told = json.loads(call.data("http_client", method="POST", url=url, body={"a": 1})["body"])
    assert told["method"] == method
    assert told["body"] == ('{"a": 1}' if method == "POST" else "")


def test_headers_stay_with_the_server_they_were_meant_for(call, site):
    secret = {"Authorization": "Bearer x", "X-Api-Key": "y", "Cookie": "z", "Accept": "text/css"}
    same = json.loads(get(call, f"{site}/redirect?to=/echo", headers=secret).data["body"])["headers"]
    assert (same["Authorization"], same["X-Api-Key"]) == ("Bearer x", "y")
    other = f"{site}/redirect?to=http://localhost:{site.port}/echo"
    passed = json.loads(get(call, other, headers=secret).data["body"])["headers"]
    assert not {"Authorization", "X-Api-Key", "Cookie"} & set(passed)
    assert passed["Accept"] == "text/css"
    assert "Cookie" not in json.loads(get(call, f"{site}/set_cookie").data["body"])["headers"]


def test_proxies_and_netrc_of_the_environment_are_not_used(call, site, monkeypatch, tmp_path):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    told = json.loads(get(call, f"{site}/echo").data["body"])["headers"]
    assert "Authorization" not in told


def test_the_request_says_who_we_are(call, site):
    told = json.loads(get(call, f"{site}/echo").data["body"])["headers"]
    assert told["User-Agent"].startswith("nbtools/")
    assert told["Accept-Encoding"] == "gzip, deflate"
    assert told["Host"] == f"127.0.0.1:{site.port}"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_methods_headers_and_bodies_arrive(call, site, method):
    result = call("http_client", method=method, url=f"{site}/echo", headers={"X-A": "b"}, body="Grüezi")
    told = json.loads(result.data["body"])
    assert (told["method"], told["headers"]["X-A"], told["body"]) == (method, "b", "Grüezi")
    assert told["headers"]["Content-Type"] == "text/plain; charset=utf-8"
    assert (result.data["status_code"], result.data["error"]) == (200, None)
    assert result.text.startswith("200 OK")


def test_head_has_headers_and_no_body(call, site):
    data = call.data("http_client", method="HEAD", url=f"{site}/page")
    assert (data["status_code"], data["body"]) == (200, "")
    assert int(data["headers"]["Content-Length"]) > 100


def test_objects_are_sent_as_json_unless_another_type_is_named(call, site):
    told = json.loads(call.data("http_client", method="POST", url=f"{site}/echo", body=[1, {"a": "ü"}])["body"])
    assert told["headers"]["Content-Type"] == "application/json"
    assert json.loads(told["body"]) == [1, {"a": "ü"}]
    headers = {"content-type": "application/x-www-form-urlencoded"}
    told = json.loads(call.data("http_client", method="POST", url=f"{site}/echo", body="a=1", headers=headers)["body"])
    assert told["headers"]["content-type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Content-Length": "5"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "upgrade"},
        {"Accept-Encoding": "br"},
        {"Proxy-Authorization": "x"},
        {"X-A": "b\r\nX-Evil: 1"},
        {"X-A\r\nX-Evil": "b"},
        {"X-A": "b\0c"},
        {"X-Ä": "b"},
        {"X A": "b"},
        {"": "b"},
        {"X-A": "→"},
        {"X-A": 5},
    ],
)
def test_headers_that_break_the_request_are_refused(call, site, headers):
    assert get(call, f"{site}/echo", headers=headers).error.code == "INVALID_ARGUMENTS"
    assert site.hits == []


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "get", "", "GET / HTTP/1.1\r\n"])
def test_other_methods_are_refused(call, site, method):
    assert call.code("http_client", method=method, url=f"{site}/echo") == "INVALID_ARGUMENTS"


def test_a_body_that_is_no_json_is_refused(call, site):
    assert call.code("http_client", method="POST", url=f"{site}/echo", body={"a": {1, 2}}) == "INVALID_ARGUMENTS"


@pytest.mark.parametrize(("status", "error"), [(404, "404 Not Found"), (500, "500 Internal Server Error"), (204, None)])
def test_the_client_returns_any_status_and_the_scraper_does_not(call, site, status, error):
    data = get(call, f"{site}/status?code={status}").data
    assert (data["status_code"], data["error"]) == (status, error)
    if status >= 400:
        result = call("web_scrape", url=f"{site}/status?code={status}")
        assert result.error.code == "HTTP_ERROR"
        assert result.data["status_code"] == status
        assert not result.error.retryable


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again(call, site, code):
    site.be_busy(2)
    assert get(call, f"{site}/busy?code={code}").data["body"] == "at last"
    assert len(site.hits) == 3


def test_a_server_that_stays_busy_is_given_up(call, site):
    site.be_busy(100)
    assert get(call, f"{site}/busy").data["error"] == "503 Service Unavailable"
    assert len(site.hits) == 4
    result = call("web_scrape", url=f"{site}/busy")
    assert (result.error.code, result.error.retryable) == ("HTTP_ERROR", True)


def test_a_wait_longer_than_the_deadline_is_told_instead_of_waited(call, site):
    site.be_busy(100)
    result = call("web_scrape", url=f"{site}/busy?code=429&after=120")
    assert "120 s" in result.error.hint
    assert len(site.hits) == 1


def test_retry_after_may_be_a_date_or_nonsense(call, site):
    for after in ("Wed, 21 Oct 2015 07:28:00 GMT", "0"):
        site.be_busy(1)
        assert get(call, f"{site}/busy?after={after.replace(' ', '%20')}").data["body"] == "at last"
    for after in ("soon", "Wed,%2021%20Oct%2099999%2007:28:00%20GMT"):
        site.be_busy(1)
        assert get(call, f"{site}/busy?after={after}").data["body"] == "at last"


def test_other_failures_are_not_tried_again(call, site):
    get(call, f"{site}/status?code=500")
    get(call, f"{site}/cut")
    assert len(site.hits) == 2


@pytest.mark.parametrize("path", ["gzip", "deflate", "zdeflate"])
def test_compressed_bodies_are_read(call, site, path):
    assert call.data("web_scrape", url=f"{site}/{path}")["title"] == "The page"


def test_a_body_of_several_compressed_members_is_read_whole(call, site):
    assert call.data("web_scrape", url=f"{site}/members")["content"] == "one two"


def test_a_decompression_bomb_is_cut_at_the_cap(call, site):
    result = get(call, f"{site}/bomb")
    assert result.error.code == "LIMIT_EXCEEDED"
    assert len(result.data["body"]) <= 700_000
    scraped = call("web_scrape", url=f"{site}/bomb")
    assert not scraped.ok or scraped.data["truncated"]


@pytest.mark.parametrize(
    ("path", "code"),
    [("nested_bomb", "HTTP_ERROR"), ("brotli", "HTTP_ERROR"), ("broken_gzip", "NETWORK_ERROR")]
    + [(name, "NETWORK_ERROR") for name in ("cut_gzip", "cut_members", "cut_deflate", "cut_head")],
)
def test_encodings_that_were_not_asked_for_are_refused(call, site, path, code):
    assert call.code("http_client", method="GET", url=f"{site}/{path}") == code


def test_an_endless_body_ends_at_the_cap(call, site):
    result = get(call, f"{site}/endless")
    assert result.error.code == "LIMIT_EXCEEDED"
    assert len(result.data["body"]) == 500_000
    assert call.data("web_scrape", url=f"{site}/endless")["truncated"]


@pytest.mark.parametrize("path", ["drip", "drip_headers", "silent"])
def test_a_server_that_trickles_ends_at_the_deadline(call, site, path):
    call.provide(WebPolicy(allow_private=True, timeout=0.6))
    assert call.code("http_client", method="GET", url=f"{site}/{path}") == "TIMEOUT"


@pytest.mark.parametrize("path", ["cut", "garbage", "endless_headers"])
def test_broken_answers_are_network_errors(call, site, path):
    result = get(call, f"{site}/{path}")
    assert result.error.code == "NETWORK_ERROR"
    assert result.error.retryable


def test_a_port_where_nobody_listens_is_a_network_error(call):
    result = get(call, "http://127.0.0.1:9/")
    assert result.error.code == "NETWORK_ERROR"
    assert "127.0.0.1" in result.error.message


def test_tls_to_what_speaks_none_is_a_network_error(call, site):
    result = get(call, f"https://127.0.0.1:{site.port}/")
    assert result.error.code == "NETWORK_ERROR"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls_checks_the_name_against_the_address_that_was_judged(shelf, site, served, tmp_path):
    """The connection goes to an address, the certificate is for a name: both have to fit."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    secure = type(served)(("127.0.0.1", 0), served.RequestHandlerClass)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    secure.hits, secure.over = [], threading.Event()
    serving = threading.Thread(target=secure.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        port = secure.server_address[1]
        trusted = {"REQUESTS_CA_BUNDLE": str(tmp_path / "cert.pem")}
        call = shelf(*TOOLS, policy=WebPolicy(allow_private=True, timeout=8, environment=trusted))
        assert call.data("web_scrape", url=f"https://localhost:{port}/page")["title"] == "The page"
        wrong = get(call, f"https://127.0.0.1:{port}/page")
        assert (wrong.error.code, wrong.error.retryable) == ("NETWORK_ERROR", False)
        call.provide(WebPolicy(allow_private=True, timeout=8, environment={}))
        assert get(call, f"https://localhost:{port}/page").error.code == "NETWORK_ERROR"
    finally:
        secure.shutdown()
        secure.server_close()
        serving.join()


@pytest.mark.parametrize(
    ("declared", "real"),
    [
        ("utf-8", "utf-8"),
        ("iso-8859-1", "cp1252"),
        ("latin-1", "utf-8"),
        ("utf-8", "cp1252"),
        ("", "utf-8"),
        ("", "cp1252"),
        ("windows-1252", "cp1252"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16", "utf-16"),
        ("", "utf-16"),
        ("nonsense", "utf-8"),
        ("zlib", "utf-8"),
        ("base64", "utf-8"),
    ],
)
def test_declared_charsets_are_read_and_wrong_ones_survived(call, site, declared, real):
    url = f"{site}/charset?declared={declared}&real={real}"
    content = call.data("web_scrape", url=url)["content"]
    # Bytes that fit the declared charset are read by it, as every browser would, even where it is a lie.
    assert content == "Zürich" or (declared == "latin-1" and content == "ZÃ¼rich")


@pytest.mark.parametrize("charset", SLOW_OR_STRANGE)
def test_a_charset_that_no_document_has_is_passed_over(charset):
    """Some take time with the square of the length, and the server chooses both."""
    assert charset_of(f"text/html; charset={charset}") is None
    page = read_page(f"<meta charset={charset}><p>Zürich \\u0041</p>".encode(), "text/html", None)
    assert page.content == "Zürich \\u0041"


def test_a_page_may_declare_its_charset_inside(call, site):
    text = "<meta%20charset=iso-8859-1><p>Z%C3%BCrich%20%E2%82%AC</p>"
    assert call.data("web_scrape", url=f"{site}/charset?declared=&real=cp1252&text={text}")["content"] == "Zürich €"


def test_what_is_no_text_is_base64_or_refused(call, site):
    result = get(call, f"{site}/picture")
    assert base64.b64decode(result.data["body"]).startswith(b"\x89PNG")
    assert result.data["body_encoding"] == "base64"
    assert "image/png" in result.text
    scraped = call("web_scrape", url=f"{site}/picture")
    assert scraped.error.code == "PARSE_ERROR"
    assert "image/png" in scraped.error.message


def test_a_url_is_checked_for_what_its_text_tells():
    assert checked_url("https://example.org:8443/a?b=c#d").hostname == "example.org"
    with pytest.raises(InvalidArguments, match="Did you mean") as caught:
        checked_url("example.org/page")
    assert "https://example.org/page" in caught.value.hint


KEYS = {"SERPER_API_KEY": "serper-secret", "TAVILY_API_KEY": "tavily-secret"}


@pytest.fixture
def searching(shelf, site):
    def made(provider, kind="good", environment=KEYS):
        policy = WebPolicy(
            allow_private=True,
            provider=provider,
            environment=environment,
            endpoints={provider: f"{site}/search?kind={kind}"},
            timeout=5,
        )
        return shelf(*TOOLS, policy=policy)

    return made


@pytest.mark.parametrize(
    ("provider", "header", "value", "asked"),
    [
        ("serper", "X-API-KEY", "serper-secret", {"q": "ducks", "num": 3}),
        ("tavily", "Authorization", "Bearer tavily-secret", {"query": "ducks", "max_results": 3}),
    ],
)
def test_a_search_asks_its_provider_and_returns_results(searching, site, provider, header, value, asked):
    result = searching(provider)("web_search", query="ducks", num_results=3)
    assert result.data == {"results": [{"title": "T", "url": "https://t.example/", "snippet": "S"}] * 3}
    assert "https://t.example/" in result.text
    method, _, headers, body = site.hits[0]
    assert (method, headers[header], json.loads(body)) == ("POST", value, asked)


@pytest.mark.parametrize(("provider", "variable"), [("serper", "SERPER_API_KEY"), ("tavily", "TAVILY_API_KEY")])
@pytest.mark.parametrize("environment", [{}, {"SERPER_API_KEY": "", "TAVILY_API_KEY": ""}])
def test_a_missing_key_is_one_clear_error_before_any_request(searching, site, provider, variable, environment):
    result = searching(provider, environment=environment)("web_search", query="ducks")
    assert result.error.code == "CONFIG_MISSING"
    assert variable in result.error.message
    assert site.hits == []


def test_an_unknown_provider_says_which_there_are(searching):
    assert "tavily" in searching("altavista")("web_search", query="x").error.hint


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("401", "HTTP_ERROR"),
        ("403", "HTTP_ERROR"),
        ("500", "HTTP_ERROR"),
        ("strange", "HTTP_ERROR"),
        ("list", "HTTP_ERROR"),
    ],
)
def test_a_provider_that_fails_is_an_error_without_the_key(searching, kind, code):
    result = searching("serper", kind)("web_search", query="x")
    assert result.error.code == code
    assert "serper-secret" not in json.dumps(result.to_dict())
    if kind in {"401", "403"}:
        assert "SERPER_API_KEY" in result.error.hint


def test_a_search_without_hits_is_empty_and_gaps_are_survived(searching):
    result = searching("serper", "empty")("web_search", query="zebra")
    assert (result.data, result.text) == ({"results": []}, "Nothing was found for 'zebra'.")
    partial = searching("serper", "partial")("web_search", query="x").data["results"]
    assert partial == [{"title": "", "url": "https://t.example/", "snippet": ""}]
    assert not searching("tavily", "partial")("web_search", query="x").ok


def test_the_key_does_not_follow_a_redirect(shelf, site):
    policy = WebPolicy(
        allow_private=True,
        environment=KEYS,
        endpoints={"serper": f"{site}/redirect?to=http://localhost:{site.port}/echo"},
    )
    assert not shelf(*TOOLS, policy=policy)("web_search", query="x").ok
    assert len(site.hits) == 1


def test_search_arguments_have_bounds(searching):
    call = searching("serper")
    for arguments in (
        {"query": ""},
        {"query": "x" * 2001},
        {"query": "x", "num_results": 0},
        {"query": "x", "num_results": 99},
    ):
        assert call.code("web_search", **arguments) == "INVALID_ARGUMENTS"


def test_nothing_stays_open_after_requests(call, site, count_descriptors):
    get(call, f"{site}/page")
    before = count_descriptors()
    for path in ("page", "bomb", "endless", "cut", "circle"):
        get(call, f"{site}/{path}")
    wait_until(lambda: count_descriptors() <= before)


def test_bytes_that_no_charset_reads_become_marks():
    assert [decode(body, None) for body in (b"caf\xe9", b"\x81", b"\xff\xfea\0")] == ["caf\u00e9", "\ufffd", "a"]
