"""Servers on loopback that speak the providers' protocols, so that the real clients can be tried without a key.

A stand-in is given a list of answers, one for each request: what a model would say and call, or a fault.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import shutil
import ssl
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

WIRES = ("openai-chat", "openai", "anthropic", "gemini")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a stand-in answers: a text, calls as names and JSON texts, or a status that is not a success.

    An answer is `cut` in the middle; `junk` makes its body no JSON; with `same_ids` every call has the same id, in this
    answer and in others. `end` says why it ended: ``length``, ``filter``; `refusal` is the text of one. Of a stream so
    many `events` are sent, and its end is as `tidy` as that of a whole one where wanted. A fault says the `refusal`.
    """

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()
    status: int = 200
    retry_after: str = ""
    cut: bool = False
    junk: bool = False
    end: str = ""
    refusal: str = ""
    events: int | None = None
    tidy: bool = True
    same_ids: bool = False


class StandIn(ThreadingHTTPServer):
    """A server that answers as a model would.

    Attributes
    ----------
    wire
        Which protocol it speaks.
    requests
        The bodies that it got.
    """

    daemon_threads = True

    def __init__(self, wire: str, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wire = wire
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        """What ``base_url`` has to be."""
        root = f"http://127.0.0.1:{self.server_port}"
        return f"{root}/v1" if self.wire.startswith("openai") else root


@functools.cache
def _one_authority() -> str:
    """Return a file with one certificate: to read all that a machine trusts takes a client half of the time of a run.

    It is empty where a machine reads them one by one, when they are wanted.
    """
    first = ssl.create_default_context().get_ca_certs(binary_form=True)[:1]
    file = Path(tempfile.mkdtemp(prefix="nbt-")) / "authority.pem"
    file.write_text("".join(map(ssl.DER_cert_to_PEM_cert, first)))
    atexit.register(shutil.rmtree, file.parent)
    return str(file) if first else ""


@contextmanager
def stand_in(wire: str, *answers: Answer) -> Iterator[StandIn]:
    """Serve answers."""
    with pytest.MonkeyPatch.context() as patch, StandIn(wire, answers) as server:
        if authority := _one_authority():
            patch.setenv("SSL_CERT_FILE", authority)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of each answer waits 40 ms for a receipt of its head

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(body)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.server.answers.pop(0) if self.server.answers else Answer(status=418)
        number = len(self.server.requests)
        if answer.status != 200:
            told = {"error": {"message": answer.refusal or f"status {answer.status}", "type": "x"}}
            self._send(answer.status, json.dumps(told), answer)
        elif json.loads(body).get("stream") or "streamGenerateContent" in self.path:
            self._stream(answer, [*STREAMS[self.server.wire](answer, number)])
        else:
            self._send(200, "{broken" if answer.junk else json.dumps(WHOLE[self.server.wire](answer, number)), answer)

    def _send(self, status: int, text: str, answer: Answer) -> None:
        self.close_connection = answer.cut
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        if answer.retry_after:
            self.send_header("Retry-After", answer.retry_after)
        self.end_headers()
        self.wfile.write(text.encode()[: len(text) // 2] if answer.cut else text.encode())

    def _stream(self, answer: Answer, events: list[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if answer.junk:
            events[1:] = ["data: {broken\n\n"]
        for event in events[: len(events) // 2 if answer.cut else answer.events]:
            data = event.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        if answer.tidy and not answer.cut:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


# The words of each protocol for why an answer ended: in order, or by calls, at its longest, by a filter.
ENDS = {
    "openai-chat": {"": "stop", "calls": "tool_calls", "length": "length", "filter": "content_filter"},
    "openai": {"length": "max_output_tokens", "filter": "content_filter"},
    "anthropic": {"": "end_turn", "calls": "tool_use", "length": "max_tokens", "filter": "refusal"},
    "gemini": {"": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"},
}


def _end(wire: str, answer: Answer) -> str:
    return ENDS[wire][answer.end or ("calls" if answer.calls else "")]


def _data(value: Any, event: str = "") -> str:
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(value)}\n\n"


def _ids(answer: Answer, number: int) -> list[str]:
    return ["call_0" if answer.same_ids else f"call_{number}_{n}" for n in range(len(answer.calls))]


def _halves(text: str) -> list[str]:
    return [half for half in (text[: len(text) // 2], text[len(text) // 2 :]) if half]


# -- OpenAI, chat completions ------------------------------------------------------------------------------------------


def _chat_whole(answer: Answer, number: int) -> dict[str, Any]:
    calls = [
        {"id": asked, "type": "function", "function": {"name": name, "arguments": arguments}}
        for asked, (name, arguments) in zip(_ids(answer, number), answer.calls, strict=True)
    ]
    message = {"role": "assistant", "content": answer.text or None, **({"tool_calls": calls} if calls else {})}
    message |= {"refusal": answer.refusal} if answer.refusal else {}
    choice = {"index": 0, "message": message, "finish_reason": _end("openai-chat", answer)}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    made = {"id": f"c{number}", "object": "chat.completion", "created": 1, "model": "m"}
    return {**made, "choices": [choice], "usage": usage}


def _chat_stream(answer: Answer, number: int) -> Iterator[str]:
    base = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for half in _halves(answer.text):
        yield chunk({"content": half})
    for half in _halves(answer.refusal):
        yield chunk({"refusal": half})
    for index, (asked, (name, arguments)) in enumerate(zip(_ids(answer, number), answer.calls, strict=True)):
        start = {"index": index, "id": asked, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for half in _halves(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    yield chunk({}, _end("openai-chat", answer))
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield _data({**base, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


# -- OpenAI, responses -------------------------------------------------------------------------------------------------


def _response_items(answer: Answer, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text or answer.refusal:
        part: dict[str, Any] = {"type": "output_text", "text": answer.text, "annotations": []}
        if answer.refusal:
            part = {"type": "refusal", "refusal": answer.refusal}
        items.append(
            {"id": f"m{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        )
    items += [
        {"id": f"f{number}{n}", "type": "function_call", "call_id": asked, "status": "completed", "name": name,
         "arguments": arguments}
        for n, (asked, (name, arguments)) in enumerate(zip(_ids(answer, number), answer.calls, strict=True))
    ]  # fmt: skip
    return items


def _response_whole(answer: Answer, number: int, status: str = "") -> dict[str, Any]:
    usage = {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    done = not status
    status = status or ("incomplete" if answer.end else "completed")
    made: dict[str, Any] = {"id": f"r{number}", "object": "response", "created_at": 1, "model": "m", "status": status}
    made |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    made["incomplete_details"] = {"reason": ENDS["openai"][answer.end]} if done and answer.end else None
    made |= {"instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0}
    return {**made, "output": _response_items(answer, number) if done else [], "usage": usage if done else None}


def _response_stream(answer: Answer, number: int) -> Iterator[str]:
    sequence = iter(range(1_000))

    def told(kind: str, **more: Any) -> str:
        return _data({"type": kind, "sequence_number": next(sequence), **more}, kind)

    yield told("response.created", response=_response_whole(answer, number, "in_progress"))
    for index, item in enumerate(_response_items(answer, number)):
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            yield told("response.output_item.added", output_index=index, item={**item, "content": [], "status": "x"})
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield told("response.content_part.added", **where, content_index=0, part=empty)
            for half in _halves(answer.refusal):
                yield told("response.refusal.delta", **where, content_index=0, delta=half)
            for half in _halves(answer.text):
                yield told("response.output_text.delta", **where, content_index=0, delta=half, logprobs=[])
            yield told("response.output_text.done", **where, content_index=0, text=answer.text, logprobs=[])
        else:
            yield told("response.output_item.added", output_index=index, item={**item, "arguments": ""})
            for half in _halves(item["arguments"]):
                yield told("response.function_call_arguments.delta", **where, delta=half)
            yield told("response.function_call_arguments.done", **where, arguments=item["arguments"], name=item["name"])
        yield told("response.output_item.done", output_index=index, item=item)
    last = _response_whole(answer, number)
    yield told(f"response.{last['status']}", response=last)


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def _anthropic_blocks(answer: Answer, number: int) -> list[tuple[dict[str, Any], str]]:
    """Return the blocks, empty, each with the text or JSON that fills it."""
    blocks: list[tuple[dict[str, Any], str]] = [({"type": "text", "text": ""}, answer.text)] if answer.text else []
    blocks += [
        ({"type": "tool_use", "id": asked, "name": name, "input": {}}, arguments)
        for asked, (name, arguments) in zip(_ids(answer, number), answer.calls, strict=True)
    ]
    return blocks


def _anthropic_whole(answer: Answer, number: int) -> dict[str, Any]:
    content = [
        {**block, "text": filled} if block["type"] == "text" else {**block, "input": json.loads(filled)}
        for block, filled in _anthropic_blocks(answer, number)
    ]
    made = {"id": f"msg{number}", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return {
        **made,
        "content": content,
        "stop_reason": _end("anthropic", answer),
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def _anthropic_stream(answer: Answer, number: int) -> Iterator[str]:
    start = {**_anthropic_whole(dataclasses.replace(answer, calls=()), number), "content": [], "stop_reason": None}
    yield _data({"type": "message_start", "message": start}, "message_start")
    for index, (block, filled) in enumerate(_anthropic_blocks(answer, number)):
        place = {"index": index}
        yield _data({"type": "content_block_start", **place, "content_block": block}, "content_block_start")
        for half in _halves(filled):
            is_text = block["type"] == "text"
            delta = (
                {"type": "text_delta", "text": half} if is_text else {"type": "input_json_delta", "partial_json": half}
            )
            yield _data({"type": "content_block_delta", **place, "delta": delta}, "content_block_delta")
        yield _data({"type": "content_block_stop", **place}, "content_block_stop")
    delta = {"stop_reason": _end("anthropic", answer), "stop_sequence": None}
    yield _data({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, "message_delta")
    yield _data({"type": "message_stop"}, "message_stop")


# -- Gemini ------------------------------------------------------------------------------------------------------------


def _gemini_part(parts: list[dict[str, Any]], *, end: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if end:
        candidate["finishReason"] = end
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}


def _gemini_calls(answer: Answer, number: int) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": asked, "name": name, "args": json.loads(arguments)}}
        for asked, (name, arguments) in zip(_ids(answer, number), answer.calls, strict=True)
    ]


def _gemini_whole(answer: Answer, number: int) -> dict[str, Any]:
    text = [{"text": answer.text}] if answer.text else []
    return _gemini_part([*text, *_gemini_calls(answer, number)], end=_end("gemini", answer))


def _gemini_stream(answer: Answer, number: int) -> Iterator[str]:
    for half in _halves(answer.text):
        yield _data(_gemini_part([{"text": half}]))
    yield _data(_gemini_part(_gemini_calls(answer, number) or [{"text": ""}], end=_end("gemini", answer)))


WHOLE = {
    "openai-chat": _chat_whole,
    "openai": _response_whole,
    "anthropic": _anthropic_whole,
    "gemini": _gemini_whole,
}
STREAMS = {
    "openai-chat": _chat_stream,
    "openai": _response_stream,
    "anthropic": _anthropic_stream,
    "gemini": _gemini_stream,
}
