from pathlib import Path

import pytest

from nbtools.door import Door
from nbtools.execute import LocalExecutor
from nbtools.paths import Roots
from nbtools.tool import ToolCall


class Shelf:
    """Calls tools through the real door, with the services that the test puts in."""

    def __init__(self, tools, services):
        self.services = services
        self.executor = LocalExecutor(tools, door=Door(services=services))

    def provide(self, service):
        self.executor.door.services[type(service)] = lambda: service

    def __call__(self, name, /, _caller="python", _on_output=None, _timeout=None, **arguments):
        call = ToolCall(tool=name, arguments=arguments, caller=_caller, on_output=_on_output, timeout=_timeout)
        return self.executor.call(call)

    def data(self, name, /, **arguments):
        return self(name, **arguments).raise_for_error().data

    def code(self, name, /, **arguments):
        result = self(name, **arguments)
        return result.error.code if result.error else f"ok: {result.data!r:.200}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder and only allowed root; things outside it lie beside it."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    monkeypatch.chdir(inside)
    return inside.resolve()


@pytest.fixture
def open_files():
    """Check that a test leaves no descriptor open."""
    before = descriptors()
    yield
    assert descriptors() <= before


def descriptors():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.fixture
def shelf(folder):
    """Make a caller of the given tools."""

    def make(*tools, **services):
        roots = Roots([folder])
        made = Shelf(tools, {Roots: lambda: roots})
        for service in services.values():
            made.provide(service)
        return made

    return make
