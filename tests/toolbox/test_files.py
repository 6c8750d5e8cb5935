import datetime as dt
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from nbtools.contract.tool import tool_of
from nbtools.ground.paths import Roots
from nbtools.toolbox.files.file_tools import TOOLS
from tests.conftest import repeated

# Codecs of Python that no document has: quadratic ones, and those that make something else of a text.
SLOW_OR_STRANGE = json.loads((Path(__file__).parents[1] / "attacks" / "charsets.json").read_text())


@pytest.fixture
def call(shelf):
    return shelf(*TOOLS)


OUTWARD = [
    "../outside/secret.txt",
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "//etc//passwd",
    "~/../../etc/passwd",
    "~root/.profile",
    "./x/../../outside/secret.txt",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/../outside/secret.txt",
    "/dev/zero",
    "/dev/stdin",
    "/sys/kernel/notes",
    "..",
    "out/secret.txt",
    "link",
    "chain",
]
NO_PATH = ["", "a\0b", "a.txt\0.png", "x" * 5000, "\ud800"]


@pytest.fixture
def links(folder):
    """Links that lead out, one of them by way of another."""
    (folder / "out").symlink_to(folder.parent / "outside")
    (folder / "link").symlink_to(folder.parent / "outside" / "secret.txt")
    (folder / "chain").symlink_to("link")


@pytest.mark.parametrize("path", OUTWARD)
def test_no_tool_reads_or_writes_outside_the_roots(call, folder, links, path):
    outside = folder.parent / "outside"
    assert call.code("file_read", path=path) == "PATH_NOT_ALLOWED"
    assert call.code("file_write", path=path, content="x") == "PATH_NOT_ALLOWED"
    assert call.code("file_write", path=f"{path}/new.txt", content="x") == "PATH_NOT_ALLOWED"
    assert call.code("file_glob", pattern="*", base_path=path) == "PATH_NOT_ALLOWED"
    assert call.code("file_list", path=path) == "PATH_NOT_ALLOWED"
    (folder / "mine.txt").write_text("mine")
    assert call.code("file_move", source="mine.txt", dest=f"{path}/new.txt") == "PATH_NOT_ALLOWED"
    if path not in {"link", "chain"}:
        assert call.code("file_delete", path=path) == "PATH_NOT_ALLOWED"
        assert call.code("file_move", source=path, dest="stolen.txt") == "PATH_NOT_ALLOWED"
        assert call.code("file_move", source="mine.txt", dest=path, overwrite=True) == "PATH_NOT_ALLOWED"
    assert [p.name for p in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("path", NO_PATH)
def test_what_is_no_path_is_an_invalid_argument(call, path):
    for name, extra in (("file_read", {}), ("file_write", {"content": "x"}), ("file_list", {}), ("file_delete", {})):
        assert call.code(name, path=path, **extra) == "INVALID_ARGUMENTS"


def test_the_refusal_names_the_roots_and_the_way_out(call, folder):
    error = call("file_read", path="../../etc/passwd").error
    assert str(folder) in error.hint
    assert "ALLOWED_PATHS" in error.hint


@pytest.mark.processes
def test_devices_pipes_and_sockets_are_not_touched(call, folder):
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        for path in ("pipe", "socket"):
            assert call.code("file_read", path=path) == "PATH_NOT_ALLOWED"
            assert call.code("file_write", path=path, content="x") == "PATH_NOT_ALLOWED"
            assert call.code("file_delete", path=path) == "PATH_NOT_ALLOWED"
    types = {entry["name"]: entry["type"] for entry in call.data("file_list")["entries"]}
    assert types == {"pipe": "other", "socket": "other"}


def test_what_was_written_is_read(call, folder, open_files):
    text = "Grüezi\r\nmitenand\n\ttab \U0001f40d"
    written = call("file_write", path="a/b/c.txt", content=text)
    assert written.data == {"path": "a/b/c.txt", "bytes_written": len(text.encode())}
    assert [a.path for a in written.artifacts] == [str(folder / "a" / "b" / "c.txt")]
    read = call("file_read", path="a/b/c.txt")
    assert read.data == {"path": "a/b/c.txt", "content": text, "size": len(text.encode()), "truncated": False}
    assert read.text == text
    assert call.data("file_read", path=str(folder / "a/b/c.txt"))["content"] == text


def test_an_empty_file_is_empty_text(call, folder):
    assert call.data("file_write", path="e.txt", content="")["bytes_written"] == 0
    result = call("file_read", path="e.txt")
    assert (result.ok, result.text, result.data["size"]) == (True, "", 0)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "latin-1", "utf-16", "utf-16-le", "utf-32", "cp1252", "UTF8", "mac_roman"]
)
def test_encodings_round_trip(call, encoding):
    call("file_write", path="x.txt", content="é à ü", encoding=encoding).raise_for_error()
    assert call.data("file_read", path="x.txt", encoding=encoding)["content"] == "é à ü"


@pytest.mark.parametrize(
    "encoding", [*("utf-9", "rot13", "zlib", "base64", "hex", "bz2", "", "a\0b", "x" * 10000), *SLOW_OR_STRANGE]
)
def test_what_is_no_text_encoding_is_refused(call, folder, encoding):
    (folder / "x.txt").write_text("x")
    for name, extra in (("file_read", {}), ("file_write", {"content": "x"})):
        result = call(name, path="x.txt", encoding=encoding, **extra)
        assert result.error.code in {"INVALID_ARGUMENTS", "PARSE_ERROR"}
    assert (folder / "x.txt").read_text() == "x"


def test_the_nearest_encoding_is_offered(call, folder):
    (folder / "x.txt").write_text("x")
    assert "utf-8" in call("file_read", path="x.txt", encoding="utf-9").error.hint


def test_characters_that_the_encoding_lacks_are_named(call, folder):
    error = call("file_write", path="x.txt", content="ab→", encoding="latin-1").error
    assert error.code == "INVALID_ARGUMENTS"
    assert "character 2" in error.message
    assert call.code("file_write", path="x.txt", content="\ud800") == "INVALID_ARGUMENTS"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xfe\xfd", b"abc\x80", b"text\0text"])
def test_binary_content_is_reported_as_such(call, folder, content):
    (folder / "picture.png").write_bytes(content)
    result = call("file_read", path="picture.png")
    assert result.error.code == "PARSE_ERROR"
    assert "image/png" in result.error.message
    assert result.data == {"path": "picture.png", "size": len(content), "mime": "image/png", "binary": True}


def test_a_large_file_is_read_in_parts_that_fit_together(call, folder):
    text = "äöü€𝄞" * 200_000
    (folder / "large.txt").write_text(text)
    parts, offset = [], 0
    for _ in range(10):
        data = call.data("file_read", path="large.txt", offset=offset)
        parts.append(data["content"])
        assert data["size"] == len(text.encode())
        if not data["truncated"]:
            break
        offset = data["next_offset"]
    assert "".join(parts) == text
    size = (folder / "large.txt").stat().st_size
    assert call.data("file_read", path="large.txt", offset=size)["content"] == ""
    assert f"has {size:,} bytes" in call("file_read", path="large.txt", offset=size + 1).error.message
    for behind in (10**12, 2**43, 2**62, 2**63, 2**200):
        assert call.code("file_read", path="large.txt", offset=behind) == "INVALID_ARGUMENTS"
    assert call.code("file_read", path="large.txt", offset=-1) == "INVALID_ARGUMENTS"


def test_a_huge_sparse_file_costs_no_more_than_the_cap(call, folder):
    with (folder / "sparse").open("wb") as file:
        file.write(b"x" * 1_500_000)
        file.truncate(10**12)
    result = call("file_read", path="sparse")
    assert result.data["truncated"]
    assert len(result.data["content"]) == 1_000_000


def test_too_much_content_is_refused_before_anything_is_written(call, folder):
    assert call.code("file_write", path="x.txt", content="x" * 16_000_001) == "LIMIT_EXCEEDED"
    assert list(folder.iterdir()) == []


def test_folders_and_missing_files_say_what_they_are(call, folder):
    (folder / "sub").mkdir()
    assert call.code("file_read", path="sub") == "INVALID_ARGUMENTS"
    assert call.code("file_read", path="gone.txt") == "FILE_NOT_FOUND"
    assert call.code("file_list", path="gone") == "FILE_NOT_FOUND"
    assert call.code("file_glob", pattern="*", base_path="gone") == "FILE_NOT_FOUND"
    assert call.code("file_delete", path="gone.txt") == "FILE_NOT_FOUND"
    assert call.code("file_move", source="gone.txt", dest="x") == "FILE_NOT_FOUND"
    assert call.code("file_write", path="sub", content="x") == "PATH_NOT_ALLOWED"
    assert call.code("file_write", path="new/", content="x") == "INVALID_ARGUMENTS"
    assert call.code("file_write", path=".", content="x") == "PATH_NOT_ALLOWED"
    (folder / "file").write_text("x")
    assert call.code("file_write", path="file/below.txt", content="x") == "PATH_NOT_ALLOWED"
    assert call.code("file_list", path="file") == "INVALID_ARGUMENTS"
    assert call.code("file_glob", pattern="*", base_path="file") == "INVALID_ARGUMENTS"


def test_a_reader_never_sees_half_a_file(call, folder):
    (folder / "x.txt").write_text("a" * 100_000)
    seen = set()

    def read():
        content = (folder / "x.txt").read_text()
        seen.add((len(content), content[:1]))

    with repeated(read):
        for letter in "bcdefgh":
            call("file_write", path="x.txt", content=letter * 100_000).raise_for_error()
    assert {length for length, _ in seen} == {100_000}
    assert [p.name for p in folder.iterdir()] == ["x.txt"]


def test_nothing_leaks_while_a_link_is_swapped_in_and_out(call, folder):
    """A writer races with links: neither the file outside is read nor is anything written there."""
    (folder / "a.txt").write_text("inside")
    outside = folder.parent / "outside" / "secret.txt"

    def swap():
        (folder / "evil").symlink_to(outside)
        (folder / "evil").replace(folder / "a.txt")
        (folder / "fresh").write_text("inside")
        (folder / "fresh").replace(folder / "a.txt")

    with repeated(swap):
        for _ in range(100):
            result = call("file_read", path="a.txt")
            assert "secret" not in result.text
            call("file_write", path="a.txt", content="mine")
    assert outside.read_text() == "secret"


def test_what_was_written_is_not_described_by_a_link_put_there_since(call, folder):
    outside = folder.parent / "outside"
    (outside / "a.txt").write_text("secret")

    class Swapped(Roots):
        def write_file(self, *args, **options):
            super().write_file(*args, **options)
            (folder / "d").rename(folder / "away")
            (folder / "d").symlink_to(outside)

    call.provide(Swapped([folder]))
    call.executor.door.services[Roots] = call.executor.door.services.pop(Swapped)
    assert call.code("file_write", path="d/a.txt", content="mine") == "PATH_NOT_ALLOWED"
    assert (folder / "away" / "a.txt").read_text() == "mine"


@pytest.fixture
def tree(folder):
    for name in ("a.csv", "b.txt", ".hidden.csv", "sub/c.csv", "sub/deep/d.csv", ".git/e.csv", "sub/[x].csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "loop").symlink_to(".")
    (folder / "out").symlink_to(folder.parent / "outside")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*.csv", ["a.csv"]),
        ("**/*.csv", ["a.csv", "sub/[x].csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("**/**/**/*.csv", ["a.csv", "sub/[x].csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("sub/**", ["sub/[x].csv", "sub/c.csv", "sub/deep", "sub/deep/d.csv"]),
        ("*/*.csv", ["sub/[x].csv", "sub/c.csv"]),
        ("*/deep/?.csv", ["sub/deep/d.csv"]),
        ("[ab].*", ["a.csv", "b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("sub/[[]x].csv", ["sub/[x].csv"]),
        (".*.csv", [".hidden.csv"]),
        (".git/*", [".git/e.csv"]),
        ("./sub//c.csv", ["sub/c.csv"]),
        ("nothing", []),
        ("loop/*", []),
        ("out/*", []),
    ],
)
def test_patterns_find_what_they_describe(call, tree, pattern, matches):
    assert call.data("file_glob", pattern=pattern) == {"pattern": pattern, "matches": matches, "truncated": False}


def test_patterns_agree_with_pathlib_where_no_link_is_near(call, folder):
    for name in ("a/b/c/x.py", "a/x.py", "b/y.py", "a/b/z.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    for pattern in ("**/*.py", "*/*.py", "a/**/x.py", "**/b/*", "*", "a/*/c/*"):
        expected = sorted(str(p.relative_to(folder)) for p in folder.glob(pattern))
        assert call.data("file_glob", pattern=pattern)["matches"] == expected


def test_matches_are_paths_that_the_other_tools_take(call, tree, folder):
    for base in ("sub", "./sub/", str(folder / "sub")):
        for match in call.data("file_glob", pattern="*.csv", base_path=base)["matches"]:
            assert call.data("file_read", path=match)["content"] == "x"


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("../*", "PATH_NOT_ALLOWED"),
        ("sub/../../outside/*", "PATH_NOT_ALLOWED"),
        ("..\\*", "PATH_NOT_ALLOWED"),
        ("/etc/*", "PATH_NOT_ALLOWED"),
        ("~/*", "PATH_NOT_ALLOWED"),
        ("C:\\*", "PATH_NOT_ALLOWED"),
        ("", "INVALID_ARGUMENTS"),
        (".", "INVALID_ARGUMENTS"),
        ("a\0b", "INVALID_ARGUMENTS"),
        ("*" * 2000, "INVALID_ARGUMENTS"),
        ("*/" * 100, "INVALID_ARGUMENTS"),
    ],
)
def test_patterns_that_leave_or_explode_are_refused(call, tree, pattern, code):
    assert call.code("file_glob", pattern=pattern) == code


def test_costly_patterns_cost_little(call, folder):
    deep = folder / "/".join(["aaaaaaaaaaaaaaaaaaaaaaaa"] * 30)
    deep.mkdir(parents=True)
    assert call.data("file_glob", pattern="**/" * 30 + "*a*a*a*a*a*a*a*b")["matches"] == []
    assert call.data("file_glob", pattern="*a" * 400 + "b")["matches"] == []


def test_many_matches_are_cut_and_say_so(call, folder):
    for i in range(1_005):
        (folder / f"{i:04}").touch()
    found = call("file_glob", pattern="*")
    assert (len(found.data["matches"]), found.data["truncated"]) == (1_000, True)
    assert "cut" in found.text
    listed = call("file_list")
    assert (len(listed.data["entries"]), listed.data["truncated"]) == (1_000, True)
    assert "1,005" in listed.text


def test_odd_names_come_out_as_text(call, folder):
    for name in (b"new\nline", b"bad\xff", "ümläut".encode(), b" space ", b"-rf", b"$(id)", b"a\\b"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")
    names = {entry["name"] for entry in call.data("file_list")["entries"]}
    assert names == {"new\nline", "bad\\xff", "ümläut", " space ", "-rf", "$(id)", "a\\b"}
    assert call.data("file_read", path="new\nline")["content"] == "x"
    assert len(call.data("file_glob", pattern="*")["matches"]) == 7


def test_a_listing_tells_type_size_and_time(call, folder):
    (folder / "a.txt").write_text("abc")
    os.utime(folder / "a.txt", (0, 1_000_000_000))
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("nowhere")
    data = call.data("file_list", path=".")
    assert data["path"] == "."
    entries = {entry["name"]: entry for entry in data["entries"]}
    assert entries["a.txt"] == {"name": "a.txt", "type": "file", "size": 3, "modified": "2001-09-09T01:46:40Z"}
    assert (entries["sub"]["type"], entries["link"]["type"]) == ("folder", "link")
    assert dt.datetime.fromisoformat(entries["sub"]["modified"]).tzinfo is not None
    assert call("file_list", path="sub").text == "sub is empty."


def test_a_move_never_replaces_unless_told_to(call, folder):
    (folder / "a").write_text("a")
    (folder / "b").write_text("b")
    assert call.code("file_move", source="a", dest="b") == "FILE_EXISTS"
    assert (folder / "b").read_text() == "b"
    assert call.data("file_move", source="a", dest="b", overwrite=True) == {"source": "a", "dest": "b", "success": True}
    assert (folder / "b").read_text() == "a"
    assert not (folder / "a").exists()
    call("file_move", source="b", dest="new/deep/c").raise_for_error()
    assert (folder / "new" / "deep" / "c").read_text() == "a"


def test_a_move_takes_folders_and_refuses_nonsense(call, folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "x").write_text("x")
    (folder / "file").write_text("f")
    call("file_move", source="sub", dest="moved").raise_for_error()
    assert (folder / "moved" / "x").read_text() == "x"
    assert call.code("file_move", source="moved", dest="moved/below") == "INVALID_ARGUMENTS"
    assert [p.name for p in (folder / "moved").iterdir()] == ["x"]
    assert call.code("file_move", source="file", dest="moved") == "FILE_EXISTS"
    assert call.code("file_move", source="file", dest="moved", overwrite=True) == "FILE_EXISTS"
    assert call.code("file_move", source="file", dest="other/") == "FILE_EXISTS"
    assert call.code("file_move", source="moved", dest="file", overwrite=True) == "FILE_EXISTS"
    assert call.code("file_move", source="file", dest="file") == "FILE_EXISTS"
    assert call.code("file_move", source=".", dest="elsewhere") == "PATH_NOT_ALLOWED"
    assert (folder / "file").read_text() == "f"


def test_links_are_moved_and_deleted_themselves(call, folder, links):
    secret = folder.parent / "outside" / "secret.txt"
    call("file_move", source="link", dest="renamed").raise_for_error()
    assert (folder / "renamed").readlink() == secret
    call("file_delete", path="renamed").raise_for_error()
    call("file_delete", path="out").raise_for_error()
    assert secret.read_text() == "secret"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_a_move_to_another_file_system_carries_the_file(call, folder):
    other = Path("/dev/shm") / f"nbtools-test-{os.getpid()}"
    other.mkdir()
    try:
        roots = Roots([folder, other])
        call.executor.door.services[Roots] = lambda: roots
        (folder / "a.bin").write_bytes(b"x" * 3_000_000)
        (folder / "a.bin").chmod(0o640)
        (other / "taken").write_text("t")
        assert call.code("file_move", source="a.bin", dest=str(other / "taken")) == "FILE_EXISTS"
        call("file_move", source="a.bin", dest=str(other / "b.bin")).raise_for_error()
        assert (other / "b.bin").stat().st_size == 3_000_000
        assert (other / "b.bin").stat().st_mode & 0o777 == 0o640
        assert sorted(p.name for p in other.iterdir()) == ["b.bin", "taken"]
        (folder / "sub").mkdir()
        assert call.code("file_move", source="sub", dest=str(other / "sub")) == "PATH_NOT_ALLOWED"
        assert sorted(p.name for p in other.iterdir()) == ["b.bin", "taken"]
    finally:
        shutil.rmtree(other)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_a_move_that_fails_halfway_leaves_the_original_and_no_copy(call, folder, monkeypatch):
    other = Path("/dev/shm") / f"nbtools-test-half-{os.getpid()}"
    other.mkdir()
    try:
        roots = Roots([folder, other])
        call.executor.door.services[Roots] = lambda: roots
        (folder / "a").write_text("a")
        monkeypatch.setattr(shutil, "copyfileobj", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        result = call("file_move", source="a", dest=str(other / "b"))
        assert (result.error.code, "No space left" in result.error.message) == ("LIMIT_EXCEEDED", True)
        assert list(other.iterdir()) == []
        assert (folder / "a").read_text() == "a"
    finally:
        shutil.rmtree(other)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_folders_that_may_not_be_entered_are_passed_over(call, folder):
    (folder / "closed").mkdir()
    (folder / "closed" / "x.csv").touch()
    (folder / "a.csv").touch()
    (folder / "closed").chmod(0)
    try:
        assert call.data("file_glob", pattern="**/*.csv")["matches"] == ["a.csv"]
        assert call.code("file_write", path="closed/y", content="x") in {"PATH_NOT_ALLOWED", "FILE_NOT_FOUND"}
        assert call.code("file_delete", path="closed/x.csv") in {"PATH_NOT_ALLOWED", "FILE_NOT_FOUND"}
    finally:
        (folder / "closed").chmod(0o700)


def test_deleting_takes_files_and_empty_folders_only(call, folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "x").write_text("x")
    assert call.code("file_delete", path="sub") == "PERMISSION_DENIED"
    assert call.data("file_delete", path="sub/x") == {"path": "sub/x", "deleted": True}
    call("file_delete", path="sub").raise_for_error()
    assert call.code("file_delete", path=".") == "PATH_NOT_ALLOWED"
    assert call.code("file_delete", path=str(folder)) == "PATH_NOT_ALLOWED"
    assert folder.exists()


def test_what_destroys_says_so_and_what_reads_says_so():
    effects = {tool_of(function).name: tool_of(function).effects.names() for function in TOOLS}
    for name in ("file_write", "file_move", "file_delete"):
        assert "destructive" in effects[name]
    for name in ("file_read", "file_glob", "file_list"):
        assert "read_only" in effects[name]


def test_a_model_needs_approval_to_write_but_not_to_read(call, folder):
    (folder / "a.txt").write_text("x")
    assert call("file_read", path="a.txt", _caller="model").ok
    assert call("file_write", path="a.txt", content="y", _caller="model").error.code == "APPROVAL_DENIED"
