"""Listener: the socket of a keeper, or of a notebook's kernel, which is created again if its name is removed.

The socket lies in a folder that others clean: when its name is gone, new clients could not come any more while the old
ones keep the keeper alive, so it is made again. Only the name of one's own socket is ever taken away.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WAITING = 64


class Listener:
    """A listening socket: a Unix socket where the system has them, else a TCP port on the loopback interface.

    Parameters
    ----------
    path_of
        Returns the path of the socket, whose folder it makes; nobody else listens there.
    tcp
        Listen on a port in any case.

    Attributes
    ----------
    address
        Where clients connect to.
    token
        What a client must know; `None` where the operating system vouches for it.
    """

    def __init__(self, path_of: Callable[[], Path], *, tcp: bool = False) -> None:
        self._path_of = path_of
        self.token: str | None = None
        self._inode = (0, 0)
        if tcp or not hasattr(socket, "AF_UNIX"):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.socket.bind(("127.0.0.1", 0))
            self.socket.listen(_WAITING)
            # The lock file is readable by this user alone, so the token is as good as the user's word.
            self.token = secrets.token_hex(16)
            self.address: dict[str, Any] = {"tcp": self.socket.getsockname()[1], "token": self.token}
        else:
            self._path = path_of()
            self._listen()
            self.address = {"unix": str(self._path)}

    def is_reachable(self) -> bool:
        """Return whether a client that knows the address finds this socket."""
        return "tcp" in self.address or self._inode == _inode(self._path)

    def renew(self) -> None:
        """Listen at the same address again.

        Raises
        ------
        OSError
            That cannot be done now; the old socket goes on, for those who wait at it.
        """
        old = self.socket
        self._path_of()  # Its folder may be gone as well.
        self._listen()
        old.close()

    def accept(self) -> socket.socket | None:
        """Return the connection of a client of the same user, `None` when there is none."""
        with contextlib.suppress(OSError):
            connection, _ = self.socket.accept()
            if _is_mine(connection):
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()
        if "unix" in self.address and self.is_reachable():
            self._path.unlink(missing_ok=True)

    def _listen(self) -> None:
        # Of a keeper that was killed, or that lost its lock: the holder of the lock has the name.
        self._path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(self._path))
        self._path.chmod(0o600)
        self.socket.listen(_WAITING)
        self._inode = _inode(self._path)


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)


def _is_mine(connection: socket.socket) -> bool:
    """Return whether the same user is on the other side; where the system cannot tell, a token must."""
    if connection.family != getattr(socket, "AF_UNIX", None) or not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.getuid())
