"""The notebooks that are open in kernels of the same home, for clients of another process.

Each kernel announces its socket in ``HOME/notebooks``; a question goes to the kernel whose page shows the notebook.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

from nbtools.errors import InvalidArguments, NbtoolsError, error_from_wire
from nbtools.memory.keeper.protocol import connect_to, dumps, frame, receive

_Address: TypeAlias = Mapping[str, Any]

_WAIT_S = 30.0


class OpenNotebooks:
    """The pages of all kernels of a home, as one.

    Parameters
    ----------
    home
        The home folder.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / "notebooks"
        self._pages: list[tuple[_Address, list[str]]] = []
        # Where proposals went: their notebook may be closed when they are asked for.
        self._proposals: dict[str, _Address] = {}

    def ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer of the one kernel that a question is for; ``who`` is asked of all.

        Raises
        ------
        NbtoolsError
            No kernel has the notebook, several have it, or the page cannot answer.
        """
        if question["ask"] == "who":
            return {"notebooks": self._names()}
        address = self._proposals.get(question.get("proposal", ""))
        if address is None:
            pages = [page for page, names in self._pages if question["notebook"] in names]
            if len(pages) != 1:
                how_many = "in several kernels that use" if pages else "in no kernel that uses"
                message = f"the notebook {question['notebook']!r} is open {how_many} this home folder."
                raise InvalidArguments(message, hint="Call notebook_read to see which notebooks are open.")
            address = pages[0]
        if question["ask"] == "propose":
            self._proposals[question["proposal"]] = address
        return _answer_of(address, question)

    def _names(self) -> list[str]:
        """Ask all kernels at once which notebooks their pages show: a kernel without a page answers slowly."""
        announced = sorted(self._folder.glob("*.json"))
        problems: list[NbtoolsError] = []
        with ThreadPoolExecutor(max_workers=16) as threads:
            self._pages = [page for page in threads.map(lambda file: _page(file, problems), announced) if page]
        names = [name for _, own in self._pages for name in own]
        if problems and not names:
            raise problems[0]
        return names


def _page(announced: Path, problems: list[NbtoolsError]) -> tuple[_Address, list[str]] | None:
    """Return the address of a kernel and the notebooks that its page shows; `None` where it does not answer."""
    try:
        address = json.loads(announced.read_text(encoding="utf-8"))
        return address, list(_answer_of(address, {"ask": "who"})["notebooks"])
    except NbtoolsError as exc:
        problems.append(exc)
    except (ConnectionRefusedError, FileNotFoundError):
        announced.unlink(missing_ok=True)  # its kernel has ended
    except (OSError, ValueError, EOFError, LookupError):
        pass  # it is about to end
    return None


def _answer_of(address: _Address, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask a kernel."""
    with connect_to(address, timeout=_WAIT_S) as connection:
        connection.sendall(frame(dumps({"token": address.get("token"), "question": dict(question)})))
        answer = receive(connection)
    if "error" in answer:
        raise error_from_wire(answer["error"])
    return answer
