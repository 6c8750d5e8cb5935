"""A Jupyter server as seen by a client: requests over HTTP, kernel messages over a websocket.

Everything here blocks and runs in threads; the kernel on the nbtools loop gets messages by a callback. The websocket
is read by a separate thread, which comes back after a lost connection: the server keeps the messages of a session
that went away and sends them when it returns under the same session id.

The token travels in a header and nowhere else: no URL, message of an error or log holds it. The scheme is ``token``,
because a Kernel Gateway does not know ``Bearer``.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from nbtools.errors import HttpError, InvalidArguments, NetworkError, PermissionDenied
from nbtools.ground.lazy import need

_HTTP_S = 60.0
_RETRIES_S = (0.1, 0.3, 0.6, 1.0, 2.0)
_WHY = "Running kernels on a gateway"


class GatewayClient:
    """The HTTP side.

    Parameters
    ----------
    url
        Address of the server, with its base path. A ``?token=`` in it is taken out and used.
    token
        The token; `None` when none is needed.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArguments(
                f"{_hide_secrets(url)!r} is not an address of a Jupyter server.",
                hint="Use http://host:port or https://host/base, as printed by the server when it starts.",
            )
        own_token = parse_qs(parts.query).get("token", [None])[0]
        # Words that servers print after their address.
        path = parts.path.rstrip("/").removesuffix("/lab").removesuffix("/tree")
        self.url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self.shown_url = _hide_secrets(self.url)
        self._token = token or own_token
        self._session: Any = None
        self._lock = threading.Lock()

    def headers(self) -> dict[str, str]:
        """Return the header that authorises a request."""
        return {"Authorization": f"token {self._token}"} if self._token else {}

    def request(self, method: str, path: str, *, json_body: Any = None, timeout: float = _HTTP_S) -> Any:
        """Make a request and return the JSON of the answer; `None` when it is empty.

        Raises
        ------
        NetworkError
            The server cannot be reached, or is not a Jupyter server.
        PermissionDenied
            The token is refused.
        HttpError
            Any other status that is not success; its number is in ``data["status"]``.
        """
        requests = need("requests", extra="gateway", why=_WHY)
        tried = f"{method} {path} on the gateway {self.shown_url}"
        with self._lock:
            if self._session is None:
                # One session for all requests, because each new connection costs a round trip, and three with TLS.
                self._session = requests.Session()
                # Nothing of ~/.netrc or the proxy settings belongs in a connection that carries a token.
                self._session.trust_env = False
        try:
            answer = self._session.request(
                method, f"{self.url}{path}", json=json_body, headers=self.headers(), timeout=(10, timeout)
            )
        except requests.RequestException as exc:
            # Its text may quote the address with a password in it.
            raise NetworkError(
                f"The gateway {self.shown_url} cannot be reached ({type(exc).__name__}).",
                hint="Is the server running, and is NBTOOLS_GATEWAY_URL its address?",
                tried=tried,
            ) from None
        self._check(answer, tried)
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise NetworkError(
                f"What answers at {self.shown_url} is not a Jupyter server.",
                hint="Check the address and its base path (as in http://host:8888/base).",
                tried=tried,
                retryable=False,
            ) from None

    def _check(self, answer: Any, tried: str) -> None:
        status = int(answer.status_code)
        if status < 300:
            return
        reason = _reason_in(answer)
        if status in (401, 403) and "Limit" not in reason:
            raise PermissionDenied(
                f"The gateway {self.shown_url} refused the {'token' if self._token else 'request: it wants a token'}.",
                hint="Set NBTOOLS_GATEWAY_TOKEN to the token that the server was started with.",
                tried=tried,
                data={"status": status},
            )
        raise HttpError(
            f"The gateway {self.shown_url} answered {status} {answer.reason}{': ' + reason if reason else ''}.",
            hint="Check the address and its base path." if status == 404 else None,
            tried=tried,
            data={"status": status},
            retryable=status >= 500,
        )

    def close(self) -> None:
        """Close idle connections."""
        if self._session is not None:
            self._session.close()


def _reason_in(answer: Any) -> str:
    """Return the reason in an error's JSON body, on one line."""
    try:
        body = answer.json()
    except ValueError:
        return ""
    text = str(body.get("message") or body.get("reason") or "") if isinstance(body, dict) else ""
    return " ".join(text.split())[:200]


def _hide_secrets(url: str) -> str:
    """Return an address without password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


class KernelSocket:
    """The websocket of one kernel, read by a thread until `close`.

    Parameters
    ----------
    server
        The server.
    kernel_id
        Which kernel.
    on_message
        Called in the thread with each message, as a dict.
    on_lost
        Called in the thread, once, when the connection is gone for good; with the reason.
    """

    def __init__(
        self,
        server: GatewayClient,
        kernel_id: str,
        *,
        on_message: Callable[[dict[str, Any]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._server = server
        self._kernel_id = kernel_id
        self._on_message = on_message
        self._on_lost = on_lost
        self.session = secrets.token_hex(16)
        self._socket: Any = None
        self._lock = threading.Lock()
        self._closed = False
        self.reconnects = 0

    def open(self) -> None:
        """Connect and start reading.

        Raises
        ------
        NetworkError
            The connection cannot be made.
        """
        self._socket = self._connect()
        # A daemon: a server that hangs must not keep the interpreter from ending.
        threading.Thread(target=self._read, name="nbtools-gateway", daemon=True).start()

    def send(self, *messages: Mapping[str, Any]) -> None:
        """Send messages; when the connection is down, wait a moment for it to come back.

        Raises
        ------
        NetworkError
            It did not.
        """
        texts = [json.dumps(message, default=str) for message in messages]
        for pause in (*_RETRIES_S, None):
            with contextlib.suppress(Exception), self._lock:
                while texts and self._socket is not None:
                    self._socket.send(texts[0])
                    del texts[0]
            if not texts:
                return
            if pause is None or self._closed:
                break
            time.sleep(pause)
        raise NetworkError(f"The connection to the gateway {self._server.shown_url} is lost.")

    def close(self) -> None:
        """Close the connection; the thread ends."""
        self._closed = True
        self.drop()

    def drop(self) -> None:
        """Cut the connection as a failing network does; it comes back by itself."""
        current = self._socket
        if current is not None and current.sock is not None:
            with contextlib.suppress(OSError):
                # Closing alone would not wake the thread that waits in recv().
                current.sock.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> Any:
        websocket = need("websocket", extra="gateway", why=_WHY)
        address = self._server.url.replace("http", "ws", 1)
        try:
            connection = websocket.create_connection(
                f"{address}/api/kernels/{self._kernel_id}/channels?session_id={self.session}",
                header=[f"{name}: {value}" for name, value in self._server.headers().items()],
                timeout=_HTTP_S,
                skip_utf8_validation=True,
                enable_multithread=True,
                # Without it each message waits 40 ms for an acknowledgement.
                sockopt=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),
                http_no_proxy=["*"],
            )
        except (websocket.WebSocketException, OSError) as exc:
            raise NetworkError(
                f"The gateway {self._server.shown_url} does not open a channel to the kernel ({type(exc).__name__}).",
                hint="A proxy in between must let websockets through.",
            ) from None
        # The timeout was for the handshake. From now on silence is normal: a kernel may compute for hours.
        connection.settimeout(None)
        return connection

    def _read(self) -> None:
        while not self._closed:
            text = self._receive()
            if text is None:
                if self._return():
                    continue
                self._on_lost(f"the connection to the gateway {self._server.shown_url} was lost")
                return
            try:
                message = json.loads(text)
            except ValueError:
                continue  # binary messages are for widgets, which nobody draws here
            if isinstance(message, dict):
                self._on_message(message)
        with self._lock, contextlib.suppress(Exception):
            self._socket.close()

    def _receive(self) -> str | bytes | None:
        """Return the next message; `None` at the end of the connection."""
        try:
            if hasattr(socket, "TCP_QUICKACK"):
                # Not lasting: the kernel takes it back whenever it likes. Without it the server, which batches, waits.
                self._socket.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            text: str | bytes = self._socket.recv()
        except Exception:
            return None
        return text or None

    def _return(self) -> bool:
        """Connect again after a loss; false when that is in vain."""
        with self._lock:
            with contextlib.suppress(Exception):
                self._socket.close()
            self._socket = None
        for pause in _RETRIES_S:
            if self._closed:
                return True
            time.sleep(pause)
            try:
                self._server.request("GET", f"/api/kernels/{self._kernel_id}", timeout=5)
                connection = self._connect()
            except NetworkError:
                continue
            except (HttpError, PermissionDenied):
                return False  # the server is there, the kernel is not
            with self._lock:
                self._socket = connection
            self.reconnects += 1
            return True
        return False
