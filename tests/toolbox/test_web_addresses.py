import socket
import threading

import pytest

from nbtools.errors import CallTimeout, InvalidArguments, NetworkError, PermissionDenied
from nbtools.toolbox.web import address
from nbtools.toolbox.web.address import Deadline, Guard, reason_against
from tests.conftest import wait_until
from tests.toolbox.conftest import get

INWARD = [
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "017700000001",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[fc00::1]",
    "[ff02::1]",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.170.2",
    "0xa9fea9fe",
    "2852039166",
    "[::ffff:169.254.169.254]",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
]


@pytest.mark.processes
@pytest.mark.parametrize("host", INWARD)
def test_addresses_that_are_not_public_are_refused(careful, site, host):
    url = f"http://{host}:{site.port}/page"
    for result in (get(careful, url), careful("web_scrape", url=url)):
        assert result.error.code in {"PERMISSION_DENIED", "NETWORK_ERROR"}, result
        if result.error.code == "NETWORK_ERROR":
            assert "not known" in result.error.message
        else:
            assert "allow" in result.error.hint
    assert site.hits == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "url",
    [
        "http://user:pass@127.0.0.1:{port}/page",
        "http://example.org@127.0.0.1:{port}/page",
        "http://127.0.0.1:{port}#@example.org/",
        "http://127.0.0.1:{port}\\@example.org/",
        "http://example.org\\@127.0.0.1:{port}/",
        "http:\\\\127.0.0.1:{port}/page",
        "http://127.0.0.1\t:{port}/page",
        "http://127.0.0.1:{port}/page\r\nX-Evil: 1",
        " http://127.0.0.1:{port}/page",
        "http://127.0.0.1:{port}/a b",
        "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460:{port}/page",
        "http://127\u30020\u30020\u30021:{port}/page",
        "http://127%2e0%2e0%2e1:{port}/page",
        "http://[::1:{port}/page",
        "http://[::1]x:{port}/page",
        "http://127.0.0.1:{port}00000/page",
        "http://127.0.0.1:0/page",
        "http://127.0.0.1:x/page",
        "http:///127.0.0.1:{port}/page",
        "http:127.0.0.1:{port}/page",
        "//127.0.0.1:{port}/page",
        "127.0.0.1:{port}/page",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1:{port}/_GET",
        "dict://127.0.0.1:{port}/",
        "data:text/html,hi",
        "javascript:alert(1)",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
        "https://",
        "http://",
        "",
        "x" * 9000,
    ],
)
def test_urls_that_trick_or_are_none_are_refused(careful, site, url):
    result = get(careful, url.format(port=site.port))
    assert result.error.code in {"PERMISSION_DENIED", "INVALID_ARGUMENTS", "NETWORK_ERROR"}, result
    assert site.hits == []
    assert "pass@" not in result.text


def test_a_password_in_a_url_is_not_repeated(careful):
    assert "hunter2" not in str(get(careful, "https://me:hunter2@example.org/").to_dict())


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("64:ff9b::5db8:d70e", True),
        ("::ffff:93.184.215.14", True),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b:1::1", False),
        ("2001:db8::1", False),
        ("2001:0:53aa:64c::1", False),
        ("2606:2800:21f:cb07:0:5efe:127.0.0.1", False),
        ("fec0::1", False),
        ("5f00::1", False),
        ("fe80::1%eth0", False),
        ("192.88.99.1", False),
        ("nonsense", False),
        ("", False),
    ],
)
def test_an_address_is_public_or_there_is_a_reason(address, public):
    assert (reason_against(address) is None) == public


@pytest.mark.processes
def test_a_name_is_looked_up_once_and_the_judged_address_is_used(site):
    """A name server that changes its answer gains nothing: the second answer is never asked for."""
    asked = []

    def changing(host, port):
        asked.append(host)
        return ["198.51.100.1"] if len(asked) == 1 else ["127.0.0.1"]

    with Deadline(1) as deadline:
        guard = Guard(deadline, look_up=changing)
        with pytest.raises(PermissionDenied):
            guard.connect("rebind.example", site.port)
        assert asked == ["rebind.example"]
        assert guard.connected == []


@pytest.mark.processes
def test_private_addresses_among_public_ones_are_passed_over(site, monkeypatch):
    monkeypatch.setattr(address, "reason_against", lambda ip: None if ip == "127.0.0.1" else "private")
    with Deadline(5) as deadline:
        guard = Guard(deadline, look_up=lambda *_: ["10.0.0.1", "127.0.0.1", "::1"])
        guard.connect("mixed.example", site.port).close()
        assert guard.connected == ["127.0.0.1"]


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "169.254.1.1", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"),
        *("fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    ],
)
def test_metadata_services_stay_closed_where_private_addresses_are_allowed(address):
    with Deadline(5) as deadline:
        guard = Guard(deadline, allow_private=True, look_up=lambda *_: [address])
        with pytest.raises(PermissionDenied, match="nbtools never connects") as caught:
            guard.connect("metadata.google.internal", 80)
    assert "credentials" in caught.value.hint


def test_a_lookup_that_never_ends_is_given_up():
    over = threading.Event()
    with Deadline(0.2) as deadline, pytest.raises(CallTimeout):
        Guard(deadline, look_up=lambda *_: over.wait(20) or []).connect("slow.example", 80)
    over.set()


@pytest.mark.processes
def test_the_next_address_is_tried_when_one_does_not_answer(site):
    with Deadline(5) as deadline:
        guard = Guard(deadline, allow_private=True, look_up=lambda *_: ["127.0.0.9", "127.0.0.1"])
        guard.connect("two.example", site.port).close()
        assert guard.connected == ["127.0.0.1"]


@pytest.mark.processes
def test_a_deadline_that_is_over_cuts_at_once(site):
    with Deadline(0.01) as deadline:
        wait_until(lambda: not deadline.left)
        with pytest.raises(CallTimeout):
            Guard(deadline, allow_private=True, look_up=lambda *_: ["127.0.0.9"]).connect("late.example", site.port)


def test_a_connection_that_is_there_after_the_end_is_cut():
    ours, theirs = socket.socketpair()
    with ours, theirs, Deadline(60) as deadline:
        deadline.end()
        deadline.watch(ours)
        theirs.settimeout(20)
        assert theirs.recv(1) == b""


def test_a_name_that_the_resolver_cannot_take_is_an_invalid_argument():
    def odd(*_):
        raise UnicodeError("label too long")

    with Deadline(5) as deadline, pytest.raises(InvalidArguments):
        Guard(deadline, look_up=odd).connect("x" * 64, 80)


def test_a_host_without_address_is_a_network_error():
    with Deadline(5) as deadline, pytest.raises(NetworkError):
        Guard(deadline, look_up=lambda *_: []).connect("empty.example", 80)


@pytest.mark.processes
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_every_redirect_is_judged_again(careful, site, monkeypatch, code):
    """As if 127.0.0.1 were the public internet, and 127.0.0.2 were not."""
    monkeypatch.setattr(address, "reason_against", lambda ip: None if ip == "127.0.0.1" else "private")
    assert get(careful, f"{site}/page").ok
    result = get(careful, f"{site}/redirect?code={code}&to=http://127.0.0.2:{site.port}/page")
    assert result.error.code == "PERMISSION_DENIED"
    assert len(site.hits) == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("file:///etc/passwd", "PERMISSION_DENIED"),
        ("ftp://127.0.0.1/", "PERMISSION_DENIED"),
        ("javascript:alert(1)", "PERMISSION_DENIED"),
        ("http://me:pw@127.0.0.1/", "HTTP_ERROR"),
        ("http://%01", "NETWORK_ERROR"),
    ],
)
def test_redirects_to_what_is_no_web_address_are_refused(call, site, target, code):
    result = get(call, f"{site}/redirect?to={target}")
    assert result.error.code in {code, "INVALID_ARGUMENTS", "HTTP_ERROR"}
    assert len(site.hits) == 1


@pytest.mark.parametrize("host", ["ev%69l.example", "%65vil.example", "evil%2eexample"])
def test_an_encoded_host_is_refused_because_rules_would_miss_it(careful, host):
    for result in (get(careful, f"http://{host}/"), careful("web_scrape", url=f"http://{host}/")):
        assert result.error.code == "INVALID_ARGUMENTS"
