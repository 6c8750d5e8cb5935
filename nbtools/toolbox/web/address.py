"""Which addresses the web tools may reach: judged on the address that is really connected to.

A name is looked up once, each address it has is judged, and the connection is made to a judged address, never to the
name again: a name that changes its answer between the check and the connection gains nothing. Odd spellings (decimal,
octal, hexadecimal, IPv4 inside IPv6) need no rules, because what is judged is what the system made of
them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import posixpath
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from nbtools.errors import CallTimeout, InvalidArguments, NbtoolsError, NetworkError, PermissionDenied
from nbtools.texts.parsing import word_lists

_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Resolver = Callable[[str, int], Sequence[str]]

_MAX_URL = 8_192
# Control characters, blanks and backslashes are where two readers of one URL part ways.
_DOUBTFUL = re.compile(r"[\x00-\x20\x7f-\x9f\\\ud800-\udfff]")
_CONNECT_S = 10.0
_LISTS = word_lists(__file__, "web.words")
_METADATA = frozenset(map(ipaddress.ip_address, _LISTS["metadata"]))
_CLOUD = "a cloud's metadata service"
_LINK = "link-local"
# These hand out the machine's own credentials to anyone who asks, and no private network is meant by them.
_CLOSED_TO_ALL = frozenset({_CLOUD, _LINK})
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER = tuple(map(ipaddress.ip_network, _LISTS["never"]))


def checked_url(text: str) -> SplitResult:
    """Return the parts of a URL that may be fetched, as far as its text can tell.

    Raises
    ------
    InvalidArguments
        It is not a URL, is over-long, holds a password, or characters that readers disagree about.
    PermissionDenied
        Its scheme is neither http nor https.
    """
    quoted = repr(text[:100])
    if not text or len(text) > _MAX_URL or _DOUBTFUL.search(text):
        raise InvalidArguments(
            f"{quoted} is not a URL: it is empty, too long, or has characters that have to be percent-encoded.",
            hint="Give an address such as https://example.org/page?x=1.",
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as exc:
        raise InvalidArguments(f"{quoted} is not a URL: {exc}.") from None
    if not parts.scheme:
        raise InvalidArguments(f"{quoted} has no scheme.", hint=f"Did you mean https://{text[:100]}?")
    if parts.scheme.lower() not in {"http", "https"}:
        raise PermissionDenied(f"{quoted}: only http and https are fetched, not {parts.scheme}.")
    if not parts.hostname or port == 0:
        raise InvalidArguments(f"{quoted} has no host.", hint="Give an address such as https://example.org/.")
    if "%" in parts.hostname and ":" not in parts.hostname:
        # Readers disagree about these too: some decode them, and a rule for the host would miss it.
        raise InvalidArguments(f"{quoted} has a host that is percent-encoded.", hint="Write the host as it is.")
    # A URL ends in logs and records.
    if parts.username is not None or parts.password is not None:
        raise InvalidArguments(
            "the URL contains a user name or password.", hint="Send an Authorization header by http_client instead."
        )
    return parts


def canonical_url(text: str) -> str:
    """Return a URL in one spelling: host in lower case and ASCII, no dot behind it, nothing encoded without need.

    Raises
    ------
    InvalidArguments, PermissionDenied
        As `checked_url` does.

    Examples
    --------
    >>> canonical_url("HTTP://Example.ORG.:80/a/../%62?q=%7e")
    'http://example.org/b?q=~'
    """
    from requests.utils import requote_uri
    from urllib3.util import parse_url

    parts = checked_url(text)
    # A dot behind a host leads to the same server, and past a rule that names it without.
    host = (parts.hostname or "").rstrip(".")
    with contextlib.suppress(UnicodeError):
        host = host.encode("idna").decode("ascii").lower()
    parsed = parse_url(requote_uri(text))
    port = None if parsed.port == {"http": 80, "https": 443}[parts.scheme.lower()] else parsed.port
    path = parsed.path or "/"  # a URL without a path is the one of "/"
    return parsed._replace(host=f"[{host}]" if ":" in host else host, port=port, path=path).url


def servers_read(url: str) -> tuple[str, ...]:
    """Return a URL as it is written, and as a server reads it that takes escaped slashes and dots for themselves.

    Such a server may also leave out what follows a semicolon in a part of the path. A place is compared with all of
    them: what allows has to fit each, what forbids fits one.

    Examples
    --------
    >>> servers_read("https://a.example/pub/..%2fb"), servers_read("https://a.example/b")
    (('https://a.example/pub/..%2fb', 'https://a.example/b'), ('https://a.example/b',))
    """
    at = min((at for mark in "?#" if (at := url.find(mark)) >= 0), default=len(url))
    start = url.find("/", url.find("://") + 3) if "://" in url[:at] else 0
    origin, path, rest = (url[:start], url[start:at], url[at:]) if 0 <= start < at else (url[:at], "", url[at:])
    raw_path = path
    before = ""
    while path != before:  # a server behind another one may unescape again
        before, path = (
            path,
            re.sub(r"%(?:25|2f|5c|2e|3b)", lambda escaped: unquote(escaped[0]), path, flags=re.IGNORECASE),
        )
    path = re.sub(r";[^/]*", "", path)
    if path == raw_path:
        return (url,)
    normal_path = posixpath.normpath("/" + path.replace("\\", "/").lstrip("/"))
    return url, f"{origin}{normal_path}{'/' if path.endswith('/') and normal_path != '/' else ''}{rest}"


def reason_against(address: str) -> str | None:
    """Return why an IP address is not one of the public internet, `None` when it is one.

    Examples
    --------
    >>> reason_against("93.184.215.14"), reason_against("::ffff:127.0.0.1")
    (None, 'loopback')
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "not an IP address"
    if isinstance(ip, ipaddress.IPv6Address):
        # Traffic to such an address ends at the IPv4 address in it, which may be this machine's.
        inner = _embedded_ipv4(ip)
        if inner is not None:
            return reason_against(str(inner))
    return _reason(ip)


def _embedded_ipv4(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that traffic to an IPv6 address ends at, where it carries one."""
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    low = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip in _NAT64:
        return low
    if ip.sixtofour is not None:
        return ip.sixtofour if _reason(ip.sixtofour) in _CLOSED_TO_ALL else None
    # IPv4-compatible (::a.b.c.d, long gone) and ISATAP (…:5efe:a.b.c.d): judged when the part is not public.
    compatible = int(ip) >> 32 == 0 and int(ip) > 1
    isatap = (int(ip) >> 32) & 0xFFFF == 0x5EFE
    return low if (compatible or isatap) and _reason(low) is not None else None


def _reason(ip: _IpAddress) -> str | None:
    # Before all else: some of these are public by their number.
    if ip in _METADATA:
        return _CLOUD
    named = {
        "loopback": ip.is_loopback,
        "unspecified": ip.is_unspecified,
        _LINK: ip.is_link_local,
        "multicast": ip.is_multicast,
        "private": ip.is_private,
        "reserved": ip.is_reserved or not ip.is_global or any(ip.version == n.version and ip in n for n in _NEVER),
    }
    return next((name for name, holds in named.items() if holds), None)


def _look_up(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class Deadline:
    """An end in time for a whole exchange, kept by cutting its connections: a server may trickle byte by byte.

    Parameters
    ----------
    seconds
        From now.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._sockets:
                connection.close()
            self._sockets.clear()

    @property
    def left(self) -> float:
        """Seconds until the end, at least 0."""
        return max(0.0, self._ends_at - time.monotonic())

    def watch(self, connection: socket.socket) -> None:
        """Cut this connection when the time is over, even after TLS has taken it over."""
        with self._lock:
            # A descriptor of our own: TLS takes the socket over, and closes it when it likes.
            self._sockets.append(connection.dup())
        if not self.left:
            self._cut()

    def end(self) -> None:
        """Let the time be over now."""
        self._ends_at = time.monotonic()
        self._cut()

    def _cut(self) -> None:
        with self._lock:
            for connection in self._sockets:
                with contextlib.suppress(OSError):
                    # Closing would not wake a thread that reads.
                    connection.shutdown(socket.SHUT_RDWR)

    def error(self) -> CallTimeout:
        """Return the error that says that the time is over."""
        return CallTimeout(f"timed out after {self.seconds:g} s", hint="The server is slow, or its answer never ends.")


class Guard:
    """Makes connections, to judged addresses only.

    Parameters
    ----------
    deadline
        When everything has to be over.
    allow_private
        Whether addresses that are not public may be reached; link-local ones and metadata services never are.
    look_up
        Returns the addresses of a host; `None` asks the system.

    Attributes
    ----------
    connected
        The addresses that were connected to.
    refusal
        The last refusal: libraries in between turn what is raised here into their own errors.
    """

    def __init__(self, deadline: Deadline, *, allow_private: bool = False, look_up: _Resolver | None = None) -> None:
        self.deadline = deadline
        self.connected: list[str] = []
        self.refusal: NbtoolsError | None = None
        self._allow_private = allow_private
        self._look_up = look_up or _look_up

    def connect(self, host: str, port: int) -> socket.socket:
        """Return a socket connected to an allowed address of the host.

        Raises
        ------
        PermissionDenied
            The host has no address that may be reached.
        NetworkError, CallTimeout
            It could not be reached (in time).
        """
        try:
            return self._connect_allowed(host.strip("[]"), port)
        except NbtoolsError as exc:
            self.refusal = exc
            raise

    def _connect_allowed(self, host: str, port: int) -> socket.socket:
        # Looked up once, and connected to what was judged: a name may lead elsewhere a moment later.
        addresses = self._resolve(host, port)
        judged = [(address, self._reason_against(address)) for address in addresses]
        allowed = [address for address, reason in judged if reason is None]
        if not allowed:
            raise _refusal(host, *judged[0])
        problem: OSError | None = None
        for address in allowed:
            try:
                return self._open(address, port)
            except OSError as exc:
                problem = exc
            if not self.deadline.left:
                raise self.deadline.error()
        raise NetworkError(f"{host} port {port} cannot be reached: {_problem_text(problem)}.")

    def _reason_against(self, address: str) -> str | None:
        reason = reason_against(address)
        # To allow the own network never means the credentials of the machine.
        return None if self._allow_private and reason not in _CLOSED_TO_ALL else reason

    def _open(self, address: str, port: int) -> socket.socket:
        wait = min(_CONNECT_S, max(0.001, self.deadline.left))
        connection = socket.create_connection((address, port), timeout=wait)
        try:
            # Asked of the socket itself: some systems take 0.0.0.0, or a short spelling, for this machine.
            reached = str(connection.getpeername()[0])
            if self._reason_against(reached) is not None:
                raise PermissionDenied(f"{address} led to {reached}, to which nbtools does not connect.")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.deadline.watch(connection)
        except BaseException:
            connection.close()
            raise
        self.connected.append(reached)
        return connection

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        """Look a host up in its own thread: the system's resolver knows no timeout."""
        answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._look_up(host, port))
            except Exception as exc:
                answers.put(exc)

        threading.Thread(target=ask, name="nbtools-resolve", daemon=True).start()
        try:
            answer = answers.get(timeout=max(0.001, self.deadline.left))
        except queue.Empty:
            raise self.deadline.error() from None
        if isinstance(answer, UnicodeError | ValueError):
            raise InvalidArguments(f"{host[:100]!r} is not a host name: {answer}.")
        if isinstance(answer, Exception) or not answer:
            reason = _problem_text(answer) if isinstance(answer, OSError) else "it has no address"
            raise NetworkError(f"the host {host} is not known: {reason}.", hint="Check its spelling and the network.")
        return answer


def _refusal(host: str, address: str, reason: str | None) -> PermissionDenied:
    if reason in _CLOSED_TO_ALL:
        return PermissionDenied(
            f"{host} resolves to {address}, to which nbtools never connects ({reason}).",
            hint="It may give away the credentials of this machine; allow_private does not open it.",
        )
    return PermissionDenied(
        f"{host}{'' if host == address else f' resolves to {address}, which'} is not a public address ({reason}).",
        hint="Allow it with allow_private (NBTOOLS_ALLOW_PRIVATE=1, or --allow-private) if that is meant.",
    )


def _problem_text(problem: OSError | None) -> str:
    if problem is None:
        return "no reason was given"
    return problem.strerror or str(problem) or type(problem).__name__
