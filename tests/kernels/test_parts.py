"""The small parts kernels are made of: framing, folders, artifacts, checks of a request."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nbtools.errors import FileMissing, InvalidArguments, PathNotAllowed
from nbtools.kernels import artifacts, validation
from nbtools.kernels.jupyter.messages import Message, MessageCodec
from nbtools.kernels.warden import process_tree
from nbtools.kernels.warden.client import Exit
from nbtools.kernels.warden.fd_socket import FdSocket
from nbtools.kernels.warden.runtime_dir import RuntimeDir, sweep
from nbtools.paths import Roots
from tests.conftest import wait_until


def test_a_signed_message_is_read_back() -> None:
    wire = MessageCodec(b"key")
    msg_id, frames = wire.pack("execute_request", {"code": "1 + \ud800"})
    got = MessageCodec(b"key").unpack([b"identity", *frames])
    assert got == Message(type="execute_request", parent_id="", content={"code": "1 + \ud800"})
    assert msg_id.startswith(wire.session)


@pytest.mark.parametrize("spoil", [0, 1, 2, 5])
def test_a_message_that_was_tampered_with_is_no_message(spoil: int) -> None:
    _, frames = MessageCodec(b"key").pack("status", {"execution_state": "idle"})
    frames[spoil] = frames[spoil][:-1] + b"!"
    assert MessageCodec(b"key").unpack(frames) is None


def test_jupyter_reads_what_we_sign() -> None:
    session = pytest.importorskip("jupyter_client.session").Session(key=b"key")
    _, frames = MessageCodec(b"key").pack("execute_request", {"code": "1"})
    _, parts = session.feed_identities(frames)
    assert session.deserialize(parts)["content"] == {"code": "1"}


def test_messages_and_descriptors_come_out_together() -> None:
    ours, theirs = (FdSocket(sock) for sock in socket.socketpair())
    read, write = os.pipe()
    ours.send({"n": 1}, [write])
    sender = threading.Thread(target=ours.send, args=({"n": 2, "text": "x" * 300_000},))
    sender.start()
    os.close(write)
    got: list[tuple[dict[str, object], list[int]]] = []
    while len(got) < 2:
        got += theirs.receive()
    sender.join()
    (first, (handed,)), (second, none) = got
    assert (first["n"], second["n"], none) == (1, 2, [])
    os.write(handed, b"through")
    assert os.read(read, 10) == b"through"
    for descriptor in (read, handed):
        os.close(descriptor)
    ours.close()
    assert theirs.receive() == []
    assert not theirs.is_open
    assert not theirs.send({"n": 3})
    theirs.close()


def test_a_folder_goes_with_its_owner(tmp_path: Path) -> None:
    folder = RuntimeDir()
    inside = folder.make("k")
    assert inside.stat().st_mode & 0o777 == 0o700
    folder.close()
    folder.close()
    assert not folder.path.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are different there")
def test_only_folders_of_dead_owners_are_swept(tmp_path: Path) -> None:
    living = RuntimeDir()
    script = (
        "import sys, time, pathlib\nfrom nbtools.kernels.warden.runtime_dir import RuntimeDir\n"
        "print(RuntimeDir().path, flush=True)\nimport os\nos._exit(0)"
    )
    dead = Path(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip())
    assert dead.is_dir()
    assert sweep(dead.parent) == 0
    for path in (dead, living.path):
        os.utime(path, (time.time() - 120,) * 2)
    sweep(dead.parent)
    assert not dead.exists()
    assert living.path.exists()
    living.close()


def test_files_written_after_the_moment_are_artifacts(tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text("x")
    time.sleep(0.02)
    begun = artifacts.moment()
    time.sleep(0.02)
    for name in ("new.txt", ".hidden", "sub/deep.csv", "__pycache__/m.pyc", "node_modules/a.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("y")
    (tmp_path / "link").symlink_to(tmp_path / "new.txt")
    assert artifacts.written_since(tmp_path, begun) == (tmp_path / "new.txt", tmp_path / "sub/deep.csv")
    assert artifacts.written_since(tmp_path / "absent", begun) == ()


def test_the_end_of_a_process_reads_well() -> None:
    assert str(Exit(code=3)) == "exit code 3"
    assert str(Exit(signal=9)) == "killed by SIGKILL"
    assert Exit(signal=250).signal_name == "signal 250"


def test_descendants_are_found_through_threads_and_generations() -> None:
    script = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, process_tree.MARK: "abc123abc123"})
    try:
        wait_until(lambda: len(process_tree.descendants([child.pid])) >= 2)
        assert process_tree.kernel_of(child.pid) == "abc123abc123"
        assert set(process_tree.descendants([child.pid])) <= set(process_tree.find_marked(frozenset({"abc123abc123"})))
        assert process_tree.footprint([child.pid]) > 0
    finally:
        for pid in process_tree.descendants([child.pid]):
            os.kill(pid, 9)
        child.wait()


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e12, "300", True, None])
def test_a_timeout_that_makes_no_sense_is_refused(value: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_seconds(value, "timeout")


@pytest.mark.parametrize("code", [b"print(1)", None, 3, "a\0b", "print('\ud800')", "x\n\udcff"])
def test_code_that_is_no_text_is_refused(code: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_code(code)


@pytest.mark.parametrize("name", ["", " a", "a/b", "a\nb", "x" * 65, "..", "a\0", None])
def test_odd_names_of_sessions_are_refused(name: object) -> None:
    with pytest.raises(InvalidArguments):
        validation.check_name(name)


@pytest.mark.parametrize("name", ["analysis", "Umsätze 2026", "a.b_c-d:e@f+1"])
def test_ordinary_names_of_sessions_are_taken(name: str) -> None:
    assert validation.check_name(name) == name


def test_a_working_folder_must_exist_and_be_allowed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "file").write_text("")
    roots = Roots([tmp_path / "in"])
    assert validation.check_folder(tmp_path / "in", roots) == tmp_path / "in"
    with pytest.raises(PathNotAllowed):
        validation.check_folder(tmp_path, roots)
    with pytest.raises(FileMissing):
        validation.check_folder(tmp_path / "absent", None)
    with pytest.raises(InvalidArguments):
        validation.check_folder(tmp_path / "file", None)
    with pytest.raises(InvalidArguments):
        validation.check_folder("a\0b", None)


def test_variables_must_be_json_under_usable_names(tmp_path: Path) -> None:
    assert validation.check_variables({"path": tmp_path, "n": 1}) == {"path": str(tmp_path), "n": 1}
    for wrong in ({"a b": 1}, {"x": object()}, {"": 1}):
        with pytest.raises(InvalidArguments):
            validation.check_variables(wrong)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        validation.check_level("tight")
