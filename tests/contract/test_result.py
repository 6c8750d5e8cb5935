"""Results: plain values that pickle, print, render, and raise what they carry."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from nbtools import errors
from nbtools.contract.result import Artifact, ErrorInfo, ToolResult
from nbtools.errors import CODES, NbtoolsError, PathNotAllowed

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d4944415478da63fcffff3f0300050001ff8d6c3b0000000049454e44ae426082"
)


def failed(code: str = "TIMEOUT", **how: object) -> ToolResult:
    info = ErrorInfo(code=code, message="too <late>", hint="wait & see", retryable=True)
    return ToolResult(ok=False, tool="t", call_id="c", error=info, **how)  # type: ignore[arg-type]


def test_the_wire_form_is_json_with_every_field(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    result = ToolResult(
        ok=True,
        tool="t",
        call_id="c",
        data={"n": 1},
        text="one",
        artifacts=(Artifact.from_path(tmp_path / "a.png"),),
        duration_s=0.12345678,
    )
    assert json.loads(json.dumps(result.to_dict())) == {
        "ok": True,
        "tool": "t",
        "call_id": "c",
        "data": {"n": 1},
        "text": "one",
        "error": None,
        "artifacts": [{"path": str(tmp_path / "a.png"), "mime": "image/png", "size": len(PIXEL)}],
        "duration_s": 0.123457,
    }
    assert failed().to_dict()["error"] == {
        "code": "TIMEOUT",
        "message": "too <late>",
        "hint": "wait & see",
        "retryable": True,
    }


def test_a_result_survives_pickling_and_cannot_be_changed() -> None:
    result = failed(data={"stdout": "x"})
    assert pickle.loads(pickle.dumps(result)) == result
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.ok = True  # type: ignore[misc]


def test_a_good_result_raises_nothing_and_returns_itself() -> None:
    result = ToolResult(ok=True, tool="t", call_id="c")
    assert result.raise_for_error() is result


@pytest.mark.parametrize("code", CODES)
def test_each_code_raises_the_class_right_below_the_root(code: str) -> None:
    with pytest.raises(NbtoolsError) as caught:
        failed(code).raise_for_error()
    assert caught.value.code == code
    assert NbtoolsError in type(caught.value).__bases__
    assert (caught.value.message, caught.value.hint, caught.value.retryable) == ("too <late>", "wait & see", True)


def test_a_code_that_nobody_knows_raises_an_internal_error() -> None:
    with pytest.raises(errors.InternalError):
        failed("NEW_CODE").raise_for_error()


def test_the_plain_form_is_the_text_or_three_lines() -> None:
    assert str(ToolResult(ok=True, tool="t", call_id="c", text="one\ntwo")) == "one\ntwo"
    assert str(failed()).splitlines() == ["t failed: TIMEOUT", "too <late>", "→ wait & see"]


def test_the_html_form_escapes_and_asks_nothing_of_the_network(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PIXEL)
    good = ToolResult(
        ok=True,
        tool="<b>",
        call_id="c",
        text="<script>alert(1)</script>",
        artifacts=(Artifact.from_path(tmp_path / "a.png"),),
    )._repr_html_()
    assert "<script>" not in good
    assert "&lt;script&gt;" in good
    assert "src='data:image/png;base64," in good
    assert "http" not in good
    bad = failed()._repr_html_()
    assert "too &lt;late&gt;" in bad
    assert "wait &amp; see" in bad


def test_long_text_is_cut_for_the_eye_only() -> None:
    result = ToolResult(ok=True, tool="t", call_id="c", text="x" * 30_000)
    assert "… 10,000 more characters" in result._repr_html_()
    assert len(str(result)) == 30_000
    whole, cut = (ToolResult(ok=True, tool="t", call_id="c", text="x" * length) for length in (20_000, 20_001))
    assert whole.shown_text() == whole.text
    assert cut.shown_text() == f"{whole.text}\n… 1 more characters"


def test_a_prompt_shows_the_text_or_the_error() -> None:
    shown: list[str] = []
    printer: Any = type("Printer", (), {"text": shown.append})
    for result in (ToolResult(ok=True, tool="t", call_id="c", text="a\x1b[2J"), failed()):
        result._repr_pretty_(printer, cycle=False)
    assert shown[0].startswith("a")
    assert "\x1b" not in shown[0]
    assert shown[1] == str(failed())


@pytest.mark.parametrize(("data", "raised"), [(None, {}), ({"a": 1}, {"a": 1}), ([1], {"data": [1]})])
def test_what_a_failure_brought_along_is_in_the_error(data: Any, raised: dict[str, Any]) -> None:
    assert dataclasses.replace(failed(), data=data).to_error().data == raised


def test_a_file_is_hashed_whole_up_to_a_size_and_found_behind_a_link_where_links_may_be(tmp_path: Path) -> None:
    content = bytes(range(251)) * 9_000  # more than is read at once
    file, link = tmp_path / "a.bin", tmp_path / "b.bin"
    file.write_bytes(content)
    link.symlink_to(file)
    hashes = [Artifact.from_path(file, hashed=len(content) - less).sha256 for less in (0, 1)]
    assert hashes == [hashlib.sha256(content).hexdigest(), None]
    assert Artifact.from_path(link).path == str(file.resolve())
    with pytest.raises(PathNotAllowed):
        Artifact.from_path(link, follow_no_links=True)
    assert Artifact.from_path(file.resolve(), follow_no_links=True).size == len(content)


def test_the_footer_tells_the_time_and_a_picture_is_shown_up_to_a_size(tmp_path: Path) -> None:
    sizes = (8 << 20, (8 << 20) + 1)
    pictures = tuple(Artifact(path=str(tmp_path / f"{size}.png"), mime="image/png", size=size) for size in sizes)
    shown = ToolResult(ok=True, tool="t", call_id="c", duration_s=1.5, artifacts=pictures)._repr_html_()
    assert "1,500 ms" in shown
    assert f"{sizes[0]}.png is gone" in shown
    assert f"{sizes[1]}.png is too large to show here" in shown


def test_a_picture_that_is_gone_says_so(tmp_path: Path) -> None:
    artifact = Artifact(path=str(tmp_path / "gone.png"), mime="image/png", size=3)
    assert "gone.png is gone" in ToolResult(ok=True, tool="t", call_id="c", artifacts=(artifact,))._repr_html_()


def test_a_file_of_unknown_kind_is_described_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "data.unknownkind").write_bytes(b"abc")
    artifact = Artifact.from_path(tmp_path / "data.unknownkind")
    assert (artifact.mime, artifact.size) == ("application/octet-stream", 3)
    assert artifact.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
