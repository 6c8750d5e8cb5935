"""What one run printed and showed, kept under its cap and handed on as it appears.

Every backend feeds a `Collector` with text and MIME bundles; it counts bytes, calls ``on_output`` and builds the
`Execution` in the end. A kernel may count too, but what the owner keeps is counted here.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from nbtools.kernels import interface
from nbtools.texts.shown import RunOutputs

# Colours of tracebacks, which no reader of text wants.
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Output this many times beyond the cap comes from a loop that will not end: the run is ended instead.
_RUNAWAY = 4
# A display that is updated occupies no more than its last state, so it may be sent more often.
_RUNAWAY_UPDATES = 40
_WIDGETS = "application/vnd.jupyter.widget-"
_OWN_ENDS = frozenset({"ok", "error"})
# An exception may quote whole frames; what is in the middle of its message or traceback is left out.
_MOST_MESSAGE, _MOST_TRACEBACK = 10_000, 100_000
_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 20
# A daemon that holds a pipe open keeps it readable; what the program itself wrote is there at its end.
_DRAIN_BYTES = 2 * _PIPE_BYTES


class PipeReader:
    """A pipe that a program writes to, read on the loop as it fills.

    Attributes
    ----------
    write_end
        The program's end; -1 once our copy of it is closed.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        # The loop reads what is there, and must not wait for more.
        os.set_blocking(self._read_end, False)
        self._take: Callable[[bytes], None] | None = None
        # With more room a program that prints much waits less often.
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl

            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def start(self, take: Callable[[bytes], None]) -> None:
        """Call `take` with each piece from now on."""
        self._take = take
        asyncio.get_running_loop().add_reader(self._read_end, self._read)

    def drain(self) -> None:
        """Take what waits in the pipe now."""
        left = _DRAIN_BYTES
        while self._read_end >= 0 and left > 0:
            left -= self._read() or left

    def close_write_end(self) -> None:
        """Close our copy of the end that the program writes to, once it has its own."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Take what waits in the pipe, and close it: a daemon may hold it open for ever."""
        self.close_write_end()
        self.drain()
        self._end()

    def _read(self) -> int:
        """Read once; return how many bytes there were."""
        try:
            data = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self._end()
        elif self._take is not None:
            self._take(data)
        return len(data)

    def _end(self) -> None:
        if self._read_end >= 0:
            asyncio.get_running_loop().remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1


class Collector:
    """Gather the output of one run.

    Parameters
    ----------
    on_output
        Called for each piece; what it raises is kept out of the run and forgotten.
    limits
        How much is kept.

    Attributes
    ----------
    is_runaway
        Whether so much came beyond a limit that the run should be ended.
    """

    def __init__(
        self, on_output: interface.OnOutput | None = None, limits: interface.OutputLimits | None = None
    ) -> None:
        self._on_output = on_output
        self.limits = limits or interface.OutputLimits()
        self._outputs = RunOutputs()
        self._text_bytes = self._room_taken = 0
        self._display_bytes = self._dropped_bytes = 0
        self._most_text = _RUNAWAY * self.limits.text_bytes
        self.is_runaway = False
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self.truncated = False
        self.error: interface.ErrorDetail | None = None
        self._others: list[interface.ErrorDetail] = []
        self.exit_code: int | None = None
        self.begun = time.perf_counter()

    def stream(self, name: Literal["stdout", "stderr"], text: str) -> None:
        """Take text of a stream."""
        if text and self._outputs.make_room():
            self._cleared("wait")
        room = self.limits.text_bytes - self._room_taken
        # Most text is ASCII, which is told without making a copy.
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._text_bytes += size
        self._room_taken += size
        self.is_runaway |= self._text_bytes > self._most_text
        if size > room:
            self.truncated = True
            if room <= 0:
                return
            # Half a character at the cut is left out.
            text = text.encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore")
        if text:
            self._outputs.stream(name, text)
            self._emit(interface.OutputPiece(kind=name, text=text))

    def raw(self, name: Literal["stdout", "stderr"], data: bytes, *, final: bool = False) -> None:
        """Take bytes of a stream; a character may be spread over two calls, what is not UTF-8 is replaced."""
        decoder = self._decoders.get(name)
        if decoder is None:
            # One for each stream, made when bytes come: Jupyter kernels send text.
            decoder = self._decoders[name] = codecs.getincrementaldecoder("utf-8")("replace")
        self.stream(name, decoder.decode(data, final))

    def display(self, data: Mapping[str, Any], *, display_id: str | None = None, update: bool = False) -> None:
        """Take a MIME bundle; an update replaces the bundle that was shown under the same id."""
        if self._outputs.make_room():
            self._cleared("wait")
        # A widget lives in the process that made it, which no page of ours speaks to: its text is shown.
        bundle = {kind: what for kind, what in data.items() if not kind.startswith(_WIDGETS)}
        size = sum(map(_bytes, bundle.items()))
        replaced = self._outputs.size_of(display_id) if update and display_id else None
        self._display_bytes += size
        self.is_runaway |= self._display_bytes > _RUNAWAY_UPDATES * self.limits.display_bytes
        if self._outputs.display_size - (replaced or 0) + size > self.limits.display_bytes:
            self.drop(size)
            return
        if display_id and replaced is not None:
            self._outputs.update(bundle, display_id, size=size)
        else:
            self._outputs.display(bundle, display_id, size=size)
        named = bundle if display_id is None else {**bundle, interface.DISPLAY_ID: display_id}
        kind: interface.Kind = "display" if replaced is None else "update"
        self._emit(interface.OutputPiece(kind=kind, text=str(bundle.get("text/plain", "")), data=named))

    def drop(self, size: int) -> None:
        """Count a MIME bundle of `size` bytes that is not kept: here, or already in the kernel."""
        self.truncated = True
        self._dropped_bytes += size
        self.is_runaway |= self._dropped_bytes > (_RUNAWAY - 1) * self.limits.display_bytes

    def clear(self, *, wait: bool = False) -> None:
        """Forget what was shown so far, as ``clear_output`` asks; with `wait`, when something else is shown."""
        if self._outputs.clear(wait=wait):
            self._cleared("")

    def _cleared(self, how: str) -> None:
        # What is cleared again and again occupies no more than its last state.
        self._room_taken, self._most_text = 0, _RUNAWAY_UPDATES * self.limits.text_bytes
        self._emit(interface.OutputPiece(kind="clear", text=how))

    def add_error(self, name: str, value: str, traceback: str = "", line: int | None = None) -> None:
        """Add an exception; the last one counts as the end of the code until `set_error` or `clear_error` decides."""
        if self.error is not None:
            self._others.append(self.error)
        self.truncated |= len(value) > _MOST_MESSAGE or len(traceback) > _MOST_TRACEBACK
        text = _cut(_ANSI.sub("", traceback), _MOST_TRACEBACK)
        self.error = interface.ErrorDetail(name=name, value=_cut(value, _MOST_MESSAGE), traceback=text, line=line)

    def set_error(self, name: str, value: str) -> None:
        """Choose the last exception of this name and message as the end of the code; the others go to stderr.

        A kernel sends an error for whatever goes wrong, also while it shows something before or after the end.
        """
        errors = [*self._others, self.error] if self.error is not None else []
        named = (name, _cut(value, _MOST_MESSAGE))
        cause = next((one for one in reversed(errors) if (one.name, one.value) == named), self.error)
        self._others, self.error = [one for one in errors if one is not cause], cause

    def clear_error(self) -> None:
        """Leave no exception as the end of the code, which went on: all of them are printed to stderr."""
        if self.error is not None:
            self._others.append(self.error)
            self.error = None

    def overflow(self) -> None:
        """Mark the run as runaway: the kernel itself dropped output far beyond the limit."""
        self.is_runaway = self.truncated = True

    def execution(self, status: interface.Status, **facts: Any) -> interface.Execution:
        """Build the record; `facts` are further fields of `Execution`.

        An exception that is only the echo of an interrupt or a kill is left out: the status says it all.
        """
        if status not in _OWN_ENDS and self.error is not None and self.error.name != "KeyboardInterrupt":
            self.clear_error()
        for other in self._others:
            text = other.traceback or f"{other.name}: {other.value}"
            so_far = self._outputs.text_of("stderr") or "\n"
            self.stream("stderr", "\n" * (not so_far.endswith("\n")) + text.rstrip("\n") + "\n")
        error = self.error if status == "error" else None
        if error is not None:
            self._emit(
                interface.OutputPiece(
                    kind="error",
                    text=str(error),
                    data={"ename": error.name, "evalue": error.value, "traceback": error.traceback.splitlines()},
                )
            )
        return interface.Execution(
            status=status,
            outputs=self._outputs.outputs,
            error=error,
            duration_s=time.perf_counter() - self.begun,
            truncated=self.truncated,
            **{"exit_code": self.exit_code, **facts},
        )

    def _emit(self, output: interface.OutputPiece) -> None:
        if self._on_output is None:
            return
        try:
            self._on_output(output)
        except Exception:
            # A broken display must not end the script it shows; the output itself is kept.
            self._on_output = None


def _bytes(entry: tuple[str, Any]) -> int:
    """Return how many bytes a MIME type and its data are in UTF-8."""
    name, data = entry
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return len(name) + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def _cut(text: str, most: int) -> str:
    """Return the head and the tail of a text that is too long."""
    left = len(text) - most
    return text if left <= 0 else f"{text[: most // 2]}\n… {left:,} characters left out …\n{text[-most // 2 :]}"
