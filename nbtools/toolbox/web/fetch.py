"""One HTTP exchange, bounded: redirects, retries, decompression, size and time; over `requests`.

Connections are made by a `Guard`. Redirects are followed here and not by requests, because each one has to be judged
again, its body must not be read, and headers that the caller meant for one server must not reach another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests import exceptions
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, InvalidHeader

from nbtools.errors import (
    HttpError,
    InternalError,
    InvalidArguments,
    LimitExceeded,
    NbtoolsError,
    NetworkError,
)
from nbtools.texts.parsing import word_lists
from nbtools.toolbox.policies import WebPolicy
from nbtools.toolbox.web.address import Deadline, Guard, canonical_url, checked_url

_CHUNK = 1 << 16
# What a piece of a compressed body may become at a time.
_INFLATED = 1 << 24
_BACKOFF_S = 0.5
_READ_S = 20.0
_BUSY = frozenset({429, 503})
_MOVED = frozenset({301, 302, 303, 307, 308})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LISTS = word_lists(__file__, "web.words")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server answered.

    Attributes
    ----------
    url
        Address that answered, after redirects.
    status
        Status code, such as 404.
    reason
        Its words, such as ``"Not Found"``.
    headers
        Names as sent; repeated ones are joined by a comma.
    body
        Decompressed bytes, cut at the cap.
    truncated
        Whether the body is longer than that.
    retry_after
        Seconds after which the server wants to be asked again, when it said so.
    """

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes = dataclasses.field(repr=False)
    truncated: bool = False
    retry_after: float | None = None

    def header(self, name: str) -> str:
        """Return a header by name, in any case; empty when it is absent."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")

    def raise_for_status(self) -> None:
        """Raise when the server answered with an error.

        Raises
        ------
        HttpError
            The status is 400 or more; retryable for 429 and 503.
        """
        if self.status < 400:
            return
        hint = None
        if self.status in _BUSY:
            hint = f"Try again in {self.retry_after:g} s." if self.retry_after else "Try again later."
        host = urlsplit(self.url).hostname
        raise HttpError(
            f"{host} answered {self.status} {self.reason}.",
            hint=hint,
            data={"status_code": self.status, "url": self.url},
            retryable=self.status in _BUSY,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Order:
    """A request as it goes out next."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


def fetch(
    policy: WebPolicy,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    redirects: int | None = None,
    judge: Callable[[str], None] = lambda _: None,
    into: Callable[[bytes], object] | None = None,
    hold: Callable[[Callable[[], None]], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Answer:
    """Send a request and return the answer, whatever its status.

    Parameters
    ----------
    policy
        Where it may go, and how long and how large it may be.
    method
        The HTTP method.
    url
        The URL.
    headers
        Beside those that describe the connection, which are refused.
    body
        The body of the request; `None` for none.
    redirects
        How many to follow; `None` takes the policy's.
    judge
        Raises when an address that a server redirects to may not be asked.
    into
        Gets the body of an answer 200 piece by piece, in place of `Answer.body`.
    hold
        Gets what ends the exchange from another thread, as if its time were over, and keeps it for the block.

    Raises
    ------
    InvalidArguments
        The URL or a header is malformed.
    PermissionDenied
        The scheme or an address is not allowed.
    NetworkError, CallTimeout
        There was no (complete) answer, or not in time.
    LimitExceeded
        Too many redirects, or more for `into` than the policy allows.
    """
    order = _Order(method=method, url=url, headers=_checked_headers(headers or {}), body=body)
    most = policy.redirects if redirects is None else redirects
    # One end for all redirects and retries: each by itself within its time could go on for ever.
    with Deadline(policy.timeout) as deadline, hold(deadline.end):
        guard = Guard(deadline, allow_private=policy.allow_private)
        for _ in range(most + 1):
            answer, location = _exchange(policy, guard, order, into)
            if location is None or not most:
                return answer
            order = _next_order(order, answer.status, location)
            # Each place that a server sends to is judged like the first: a redirect is the usual way around a list of
            # places.
            judge(canonical_url(order.url))
    raise LimitExceeded(f"more than {most} redirects.", hint="The server redirects in a circle.")


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if name.lower() in _LISTS["own headers"]:
            raise InvalidArguments(f"the header {name!r} is set by the connection itself.", hint="Leave it out.")
        # A line end in a header would begin another header, or another request.
        if not _TOKEN.fullmatch(name) or any(c in value for c in "\r\n\0"):
            raise InvalidArguments(f"the header {name[:60]!r} has characters that headers cannot have.")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise InvalidArguments(f"the header {name!r} has characters beyond Latin-1.") from None
    names = {name.lower() for name in headers}
    return {
        **({} if "user-agent" in names else {"User-Agent": _user_agent()}),
        **({} if "accept" in names else {"Accept": "*/*"}),
        **headers,
        "Accept-Encoding": "gzip, deflate",
    }


def _user_agent() -> str:
    """Return who we are, so that a site can name us in its robots.txt."""
    return f"nbtools/{importlib.metadata.version('nbtools-kit')} (notebook toolkit; honours Retry-After)"


def _next_order(order: _Order, status: int, location: str) -> _Order:
    target = urljoin(order.url, location.strip())
    try:
        checked_url(target)
    except InvalidArguments as exc:
        raise HttpError(f"the server redirects to something that is not a URL: {exc.message}") from None
    headers = dict(order.headers)
    # Tokens were for the server that was named: another one, also another port, must not get them.
    if _origin(target) != _origin(order.url):
        headers = {name: value for name, value in headers.items() if name.lower() in _LISTS["travelling headers"]}
    # As browsers do, whatever the standard once said of 301 and 302.
    if status == 303 or (status in {301, 302} and order.method == "POST"):
        headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        return _Order(method="HEAD" if order.method == "HEAD" else "GET", url=target, headers=headers)
    return dataclasses.replace(order, url=target, headers=headers)


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.hostname, parts.port or (443 if parts.scheme.lower() == "https" else 80)


def _exchange(
    policy: WebPolicy, guard: Guard, order: _Order, into: Callable[[bytes], object] | None
) -> tuple[Answer, str | None]:
    """Perform one request, again while the server is busy; return the answer and where it redirects to."""
    for attempt in range(policy.retries + 1):
        answer, location = _send(policy, guard, order, into)
        if answer.status not in _BUSY or attempt == policy.retries:
            break
        wait = answer.retry_after if answer.retry_after is not None else _BACKOFF_S * 2**attempt
        # The answer that it is busy is worth more than a timeout.
        if wait >= guard.deadline.left:
            break
        time.sleep(wait)
    return answer, location


def _send(
    policy: WebPolicy, guard: Guard, order: _Order, into: Callable[[bytes], object] | None
) -> tuple[Answer, str | None]:
    checked_url(order.url)
    guard.refusal = None
    before = len(guard.connected)
    adapter = _adapter(guard)
    try:
        request = requests.Request(order.method, order.url, headers=dict(order.headers), data=order.body).prepare()
        wait = max(0.001, min(_READ_S, guard.deadline.left))
        authorities = policy.variable("REQUESTS_CA_BUNDLE") or policy.variable("CURL_CA_BUNDLE") or True
        response = adapter.send(request, stream=True, timeout=wait, verify=authorities)
        with response:
            # The guard hangs on private names of urllib3: where these change, nothing goes out unjudged.
            if len(guard.connected) == before:
                raise InternalError("a connection was made past the guard: this version of urllib3 is not supported")
            return _read(policy, guard.deadline, response, into)
    except NbtoolsError:
        raise
    except (exceptions.RequestException, OSError, ValueError, zlib.error, HTTPError) as exc:
        raise _as_error(exc, guard) from None
    finally:
        adapter.close()


def _adapter(guard: Guard) -> Any:
    """Return an adapter whose every connection is made by the guard.

    No session of requests stands above it: that would read the bodies of redirects, ask proxies (which look names up
    past the guard), send passwords from .netrc, and keep cookies.
    """

    class Plain(HTTPConnection):
        def _new_conn(self) -> Any:
            return guard.connect(self.host, self.port)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> Any:
            return guard.connect(self.host, self.port)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    adapter: Any = HTTPAdapter(pool_connections=2, pool_maxsize=1)
    adapter.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return adapter


def _as_error(exc: Exception, guard: Guard) -> NbtoolsError:
    """Return our error for what a library raised."""
    if guard.refusal is not None:
        return guard.refusal
    # A cut connection shows as any other fault of the transport: the clock tells why it was cut.
    if not guard.deadline.left:
        return guard.deadline.error()
    if isinstance(exc, exceptions.InvalidURL | exceptions.InvalidHeader | exceptions.MissingSchema | UnicodeError):
        return InvalidArguments(f"the request is malformed: {exc}.")
    reason = f"{type(exc).__name__}: {exc}"[:300]
    if isinstance(exc, exceptions.SSLError):
        return NetworkError(f"the server's certificate is not accepted: {reason}", retryable=False)
    if isinstance(exc, exceptions.Timeout | TimeoutError):
        return NetworkError(f"the server does not answer: {reason}")
    return NetworkError(f"the connection broke: {reason}")


def _read(
    policy: WebPolicy, deadline: Deadline, response: Any, into: Callable[[bytes], object] | None
) -> tuple[Answer, str | None]:
    location = response.headers.get("Location") if response.status_code in _MOVED else None
    with contextlib.suppress(UnicodeError):
        # A header is read as Latin-1, and what stands in it unescaped is UTF-8, as browsers take it.
        location = location and location.encode("latin-1").decode("utf-8")
    body, truncated = b"", False
    # The body of a redirect is of no use, and might never end.
    if location is None:
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        chunks = response.raw.stream(_CHUNK, decode_content=False)
        # Where the body of an answer goes to a file, that of another one is worth a glance.
        most = policy.body_bytes if into is None or response.status_code == 200 else _CHUNK
        pieces = _decompress(chunks, encoding, min(most, _INFLATED) if into else most)
        keep = into if response.status_code == 200 else None
        body, truncated = _read_bounded(pieces, most, deadline, keep)
        if keep and truncated:
            raise LimitExceeded(f"{response.url} is larger than {most:,} bytes.", hint="Fetch a part of it.")
    answer = Answer(
        url=response.url,
        status=response.status_code,
        reason=response.reason or "",
        headers=dict(response.headers),
        body=body,
        truncated=truncated,
        retry_after=_seconds(response.headers.get("Retry-After")),
    )
    return answer, location


def _read_bounded(
    chunks: Iterator[bytes], most: int, deadline: Deadline, into: Callable[[bytes], object] | None
) -> tuple[bytes, bool]:
    body = bytearray()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if into is None or size > most:
            body += chunk
        else:
            into(chunk)
        if size > most:
            return bytes(body[:most]), True
        if not deadline.left:
            raise deadline.error()
    # A connection that the deadline has cut may look like one that ended.
    if not deadline.left:
        raise deadline.error()
    return bytes(body), False


def _decompress(chunks: Iterator[bytes], encoding: str, most: int) -> Iterator[bytes]:
    """Undo the compression of a body, a bounded piece at a time: a few bytes may stand for gigabytes."""
    if encoding in {"", "identity"}:
        yield from chunks
        return
    # Brotli and zstd have no decoder of the standard library that stops at a bound.
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise HttpError(f"the body is encoded as {encoding[:60]!r}, which was not requested.")
    inflater = zlib.decompressobj(wbits=47)
    begun = ended = False
    whole = True
    for chunk in chunks:
        data = chunk
        while data:
            try:
                piece = inflater.decompress(data, most + 1)
            except zlib.error:
                if ended:
                    # Padding behind the end of a stream means nothing.
                    return
                if begun or encoding != "deflate":
                    raise
                # Some servers send the bare stream, without the header that the standard asks for.
                inflater = zlib.decompressobj(wbits=-15)
                piece = inflater.decompress(data, most + 1)
            begun = True
            whole = whole and not piece
            yield piece
            data = inflater.unconsumed_tail
            if inflater.eof:
                ended, whole, data = True, True, inflater.unused_data
                inflater = zlib.decompressobj(wbits=47)
    if begun and not (ended and whole):
        raise zlib.error("the compressed body ends too early")


def _seconds(text: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for: a number, or a date."""
    with contextlib.suppress(InvalidHeader, ValueError, OverflowError):
        return Retry().parse_retry_after(text) if text else None
    return None
