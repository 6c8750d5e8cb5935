import os
import socket
import stat
from pathlib import Path

import pytest

from nbtools.errors import FileMissing, InvalidArguments, PathNotAllowed
from nbtools.ground.paths import Roots
from tests.conftest import repeated

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def test_one_folder_is_not_taken_for_its_letters(tmp_path):
    assert Roots(str(tmp_path)).roots == Roots(tmp_path).roots == (tmp_path.resolve(),)


@pytest.fixture
def ground(tmp_path, monkeypatch):
    """A root with a file, and something outside it."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "sub" / "a.txt").write_text("inside")
    (outside / "secret.txt").write_text("secret")
    monkeypatch.chdir(root)
    return root.resolve()


@pytest.fixture
def roots(ground):
    return Roots([ground])


def test_a_closed_folder_is_closed_with_all_that_lies_in_it(ground):
    (ground / "way").symlink_to(ground / "sub")
    closed = Roots([ground], closed=[ground / "sub"])
    for path in ("sub", "sub/a.txt", "sub/new/deep.txt", "way/a.txt"):
        with pytest.raises(PathNotAllowed):
            closed.resolve(path, must_exist=False)
    assert closed.resolve("subway", must_exist=False) == ground / "subway"


def test_no_root_at_all_is_refused():
    with pytest.raises(InvalidArguments):
        Roots([])


def test_a_path_below_the_root_resolves_to_itself(roots, ground):
    assert roots.resolve("sub/a.txt") == ground / "sub" / "a.txt"
    assert roots.resolve(ground / "sub" / ".." / "sub" / "a.txt") == ground / "sub" / "a.txt"
    assert roots.allows("sub/new.txt")


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "../../etc/passwd",
        "sub/../../outside/secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "~/../../../etc/passwd",
        "~root/.bashrc",
        "sub/a.txt/../../../outside/secret.txt",
        "./././../outside",
        "..",
    ],
)
def test_a_path_that_leads_outside_is_refused(roots, path):
    assert not roots.allows(path)
    with pytest.raises(PathNotAllowed, match="outside"):
        roots.resolve(path)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "lone \ud800 surrogate"])
def test_what_is_no_path_is_refused(roots, path):
    assert not roots.allows(path)
    with pytest.raises(InvalidArguments):
        roots.resolve(path)


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "database").mkdir()
    assert not Roots([tmp_path / "data"]).allows(tmp_path / "database")


def test_a_link_that_leads_out_is_refused_for_reading_and_writing(roots, ground):
    (ground / "link").symlink_to(ground.parent / "outside" / "secret.txt")
    (ground / "folder").symlink_to(ground.parent / "outside")
    for path in ("link", "folder/secret.txt", "folder/new.txt"):
        with pytest.raises(PathNotAllowed):
            roots.resolve(path, must_exist=False, for_writing=True)


def test_a_link_inside_the_root_is_followed_or_meant_itself(roots, ground):
    (ground / "link").symlink_to("sub/a.txt")
    assert roots.resolve("link") == ground / "sub" / "a.txt"
    assert roots.resolve("link", follow=False) == ground / "link"


def test_a_dangling_link_and_a_loop_do_not_exist(roots, ground):
    (ground / "dangling").symlink_to("nowhere")
    (ground / "loop").symlink_to("loop")
    for path in ("dangling", "loop"):
        with pytest.raises(FileMissing):
            roots.resolve(path)


def test_the_allowed_folder_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("a")
    (tmp_path / "alias").symlink_to("real")
    roots = Roots([tmp_path / "alias"])
    assert roots.resolve(tmp_path / "alias" / "a") == (tmp_path / "real" / "a").resolve()


@pytest.mark.processes
def test_devices_sockets_and_pipes_are_refused(ground, tmp_path):
    os.mkfifo(ground / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(ground / "socket"))
        for path in (ground / "pipe", ground / "socket"):
            with pytest.raises(PathNotAllowed, match="device, socket or pipe"):
                Roots([ground]).resolve(path)


def test_the_state_of_the_system_is_no_file_even_below_the_widest_root():
    widest = Roots(["/"])
    for path in ("/proc/self/environ", "/dev/null", "/dev/zero", "/sys/kernel"):
        assert not widest.allows(path)
    assert widest.allows("/etc/passwd")


def test_a_root_inside_a_system_folder_is_meant(tmp_path):
    if not Path("/dev/shm").is_dir():  # pragma: no cover - Linux has it
        pytest.skip("no /dev/shm here")
    assert Roots(["/dev/shm"]).allows("/dev/shm/x")


def test_relative_paths_start_at_the_working_folder_even_where_it_is_not_allowed(roots, ground, monkeypatch, tmp_path):
    monkeypatch.chdir(ground.parent)
    assert roots.resolve(f"{ground.name}/sub/a.txt") == ground / "sub" / "a.txt"
    with pytest.raises(PathNotAllowed) as caught:
        roots.resolve("sub/a.txt")
    assert str(ground) in caught.value.hint


def test_a_missing_file_says_where_relative_paths_start(roots, ground):
    with pytest.raises(FileMissing) as caught:
        roots.resolve("sub/b.txt")
    assert str(ground) in caught.value.hint
    assert roots.resolve("sub/b.txt", must_exist=False) == ground / "sub" / "b.txt"


def test_a_file_is_no_folder_to_pass_through(roots):
    with pytest.raises(FileMissing):
        roots.resolve("sub/a.txt/b")
    with pytest.raises(PathNotAllowed), roots.folder(roots.roots[0] / "sub" / "a.txt"):
        pass


def test_a_root_itself_is_not_written(roots, ground):
    with pytest.raises(PathNotAllowed, match="folder itself"):
        roots.resolve(ground, for_writing=True)


def test_open_file_refuses_a_link_swapped_in_after_the_judgement(roots, ground):
    real = roots.resolve("sub/a.txt")
    real.unlink()
    real.symlink_to(ground.parent / "outside" / "secret.txt")
    with pytest.raises(PathNotAllowed):
        roots.open_file(real)


def test_open_file_refuses_a_folder_swapped_in_after_the_judgement(roots, ground):
    real = roots.resolve("sub/a.txt")
    (ground / "sub").rename(ground / "aside")
    (ground / "sub").symlink_to(ground.parent / "outside")
    with pytest.raises(PathNotAllowed):
        roots.open_file(real)
    with pytest.raises(PathNotAllowed):
        roots.write_file(real, b"x")
    assert not (ground.parent / "outside" / "a.txt").exists()


def test_open_file_does_not_wait_at_a_pipe_swapped_in(roots):
    real = roots.resolve("sub/a.txt")
    real.unlink()
    os.mkfifo(real)
    with pytest.raises(PathNotAllowed):
        roots.open_file(real)


def test_open_file_says_that_a_file_went_away(roots):
    real = roots.resolve("sub/a.txt")
    real.unlink()
    with pytest.raises(FileMissing):
        roots.open_file(real)
    with pytest.raises(FileMissing):
        roots.open_file(real.parent / "gone" / "a.txt")


def test_nothing_is_read_outside_while_links_are_swapped_in_a_race(roots, ground):
    """Whatever moment the swap happens at, what is read is the file inside or an error."""
    target, outside = ground / "sub", ground.parent / "outside"
    (outside / "a.txt").write_text("secret")

    def swap():
        target.rename(ground / "aside")
        target.symlink_to(outside)
        target.unlink()
        (ground / "aside").rename(target)

    seen = set()
    with repeated(swap):
        for _ in range(400):
            try:
                with os.fdopen(roots.open_file(roots.resolve("sub/a.txt"))) as file:
                    seen.add(file.read())
            except (PathNotAllowed, FileMissing):
                continue
    assert "secret" not in seen


def test_write_file_makes_folders_and_replaces_whole(roots, ground):
    real = roots.resolve("new/deep/a.bin", must_exist=False, for_writing=True)
    roots.write_file(real, b"one")
    roots.write_file(real, b"two")
    assert real.read_bytes() == b"two"
    assert [p.name for p in real.parent.iterdir()] == ["a.bin"]


def test_write_file_keeps_the_mode_of_the_file_it_replaces(roots, ground):
    file = ground / "sub" / "a.txt"
    file.chmod(0o640)
    roots.write_file(file, b"new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_write_file_leaves_a_folder_alone(roots, ground):
    with pytest.raises(PathNotAllowed, match="is a folder"):
        roots.write_file(ground / "sub", b"x")
    assert (ground / "sub" / "a.txt").exists()


def test_write_file_leaves_nothing_behind_when_it_cannot_write(roots, ground):
    name = "x" * 300
    with pytest.raises(PathNotAllowed, match="cannot be written"):
        roots.write_file(ground / "sub" / name, b"x")
    assert [p.name for p in (ground / "sub").iterdir()] == ["a.txt"]


@pytest.mark.skipif(AS_ROOT, reason="root may write everything")
def test_write_file_respects_a_read_only_file(roots, ground):
    file = ground / "sub" / "a.txt"
    file.chmod(0o444)
    with pytest.raises(PathNotAllowed, match="read-only"):
        roots.write_file(file, b"x")


def test_move_reserves_the_new_name_and_never_replaces_by_accident(roots, ground):
    (ground / "sub" / "b.txt").write_text("other")
    with roots.folder(ground / "sub") as folder:
        with pytest.raises(FileExistsError):
            folder.move("a.txt", folder, "b.txt")
        folder.move("a.txt", folder, "b.txt", overwrite=True)
        folder.move("b.txt", folder, "c.txt")
        assert folder.names() == ["c.txt"]
        with pytest.raises(FileMissing):
            folder.move("gone", folder, "d.txt")
    assert (ground / "sub" / "c.txt").read_text() == "inside"


def test_move_takes_a_folder_along(roots, ground):
    with roots.folder(ground) as folder:
        folder.move("sub", folder, "moved")
    assert (ground / "moved" / "a.txt").read_text() == "inside"


def test_move_gives_the_reserved_name_back_when_it_fails(roots, ground):
    with roots.folder(ground) as folder, roots.folder(ground / "sub") as below:
        with pytest.raises(OSError):
            folder.move("sub", below, "itself")
        assert below.names() == ["a.txt"]


def test_entries_are_names_and_no_paths(roots, ground):
    with roots.folder(ground) as folder:
        for name in ("", ".", "..", "sub/a.txt"):
            with pytest.raises(PathNotAllowed):
                folder.status(name)
        assert folder.status("nothing") is None
        folder.close()
        folder.close()


def test_remove_takes_the_link_and_not_what_it_leads_to(roots, ground):
    (ground / "link").symlink_to(ground.parent / "outside" / "secret.txt")
    with roots.folder(ground) as folder:
        folder.remove("link")
        with pytest.raises(OSError):
            folder.remove("sub")
    assert (ground.parent / "outside" / "secret.txt").exists()


def test_without_relative_calls_the_path_is_judged_once_more(roots, ground, monkeypatch):
    monkeypatch.setattr(os, "supports_dir_fd", set())
    roots.write_file(ground / "new" / "b.txt", b"x")
    assert os.read(roots.open_file(ground / "new" / "b.txt"), 5) == b"x"
    with roots.folder(ground / "sub") as folder:
        assert folder.names() == ["a.txt"]
        folder.move("a.txt", folder, "c.txt")
    (ground / "out").symlink_to(ground.parent / "outside")
    with pytest.raises(PathNotAllowed):
        roots.folder(ground / "out")
    with pytest.raises(PathNotAllowed):
        roots.folder(ground / "sub" / "c.txt" / "d", make=True)
