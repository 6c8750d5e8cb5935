"""A front end without a browser: it opens a view of a widget, asks as the JavaScript does, keeps what comes back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_NUMBERS = itertools.count()


class FrontEnd:
    """What a browser sees of one widget."""

    def __init__(self, widget: Any) -> None:
        self.widget = widget
        self.messages: list[dict[str, Any]] = []
        self._came = threading.Condition()
        widget.send = self._keep

    def _keep(self, content: dict[str, Any], buffers: Any = None) -> None:
        with self._came:
            self.messages.append(content)
            self._came.notify_all()

    def wait_for(self, fits: Callable[[dict[str, Any]], Any], *, seconds: float = 120) -> dict[str, Any]:
        """Return the first message that fits."""
        with self._came:
            found = self._came.wait_for(lambda: next(filter(fits, self.messages), None), seconds)
        assert found, f"nothing fits in {self.messages}"
        return found

    def receive(self, **message: Any) -> None:
        """Let the widget receive a message of a view."""
        self.widget._handle_custom_msg(message, [])

    def start(self, name: str, **given: Any) -> str:
        """Ask and return the key of the request."""
        key = f"test:{next(_NUMBERS)}"
        self.receive(t="ask", id=key, name=name, given=given)
        return key

    def reply(self, key: str) -> dict[str, Any]:
        """Wait for the reply of a request."""
        return self.wait_for(lambda message: message["t"] == "reply" and message["id"] == key)

    def ask(self, name: str, **given: Any) -> Any:
        """Ask and return the value of the reply."""
        reply = self.reply(self.start(name, **given))
        assert "error" not in reply, reply
        return reply["value"]

    def stop(self, key: str) -> None:
        """Say that nobody waits for a reply."""
        self.receive(t="stop", id=key)


@pytest.fixture
def front_end() -> Iterator[Callable[[Any], FrontEnd]]:
    """Return a function that opens a front end for a widget; the widgets are closed at the end."""
    opened: list[FrontEnd] = []

    def view(widget: Any) -> FrontEnd:
        opened.append(FrontEnd(widget))
        return opened[-1]

    yield view
    for each in opened:
        each.widget.close()
