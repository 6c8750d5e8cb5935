"""Where other processes of the same user ask this kernel for its notebook: a socket that is announced in the home.

``HOME/notebooks/PID.json`` says where it listens. A client sends one question as a frame and gets one answer; see
`nbtools.jupyter.notebook.page` for both.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path

from nbtools.agent.notebook.cells import Ask
from nbtools.errors import NbtoolsError, error_to_wire
from nbtools.ground.aio import start_thread
from nbtools.ground.home import make_private
from nbtools.memory.duckdb.directory import socket_place
from nbtools.memory.keeper.listener import Listener
from nbtools.memory.keeper.protocol import dumps, frame, limit_waiting, receive

_WAIT_S = 30.0


class NotebookSocket:
    """Answers the questions of clients with what a page says, each in its own thread.

    Parameters
    ----------
    home
        The home folder.
    ask
        Asks the page.
    """

    def __init__(self, home: Path, ask: Ask) -> None:
        self._ask = ask
        folder = home / "notebooks"
        make_private(folder)
        own = folder / f"{os.getpid()}.sock"
        self._listener = Listener(lambda: socket_place(own, own))
        self._announced = own.with_suffix(".json")
        self._announced.unlink(missing_ok=True)
        descriptor = os.open(self._announced, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(self._listener.address, file)
        self._is_closed = False
        threading.Thread(target=self._listen, name="nbtools-notebook", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        self._announced.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # which wakes the thread that waits
            self._listener.socket.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while not self._is_closed:
            connection = self._listener.accept()
            if connection is not None:
                with contextlib.suppress(NbtoolsError):  # no thread to be had: the client hears that it ended
                    start_thread(self._answer, connection, name="nbtools-notebook-client")

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError, ValueError):
            limit_waiting(connection, _WAIT_S)
            message = receive(connection)
            if message.get("token") != self._listener.token:
                return
            try:
                answer = dict(self._ask(message["question"]))
            except NbtoolsError as exc:
                answer = {"error": error_to_wire(exc)}
            except (KeyError, TypeError) as exc:
                answer = {"problem": f"the request is malformed: {exc!r}"}
            connection.sendall(frame(dumps(answer)))
