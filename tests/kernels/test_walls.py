"""Code that tries to outlive its kernel, to escape what is counted, or to take over who watches it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shlex
import shutil
import sys
import time
import uuid
from pathlib import Path

import pytest

from nbtools import confine
from nbtools.confine import capabilities
from nbtools.kernels import Execution, Kernels
from tests.apart import run_apart
from tests.conftest import mostly_slow, wait_until

pytestmark = [
    pytest.mark.races,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="families are looked up in /proc"),
]

LEVELS = ["limits", "strict"] if capabilities().can("strict") else ["limits"]

# Each ends by itself after 200 processes or 20 generations, whatever happens to it.
BOMBS = {
    "fork bomb": """
import mmap, os, struct, time
count = mmap.mmap(-1, 8)
main = os.getpid()
while struct.unpack('Q', count[:8])[0] < 200:
    try:
        if os.fork() == 0:
            os.setsid()
            count[:8] = struct.pack('Q', struct.unpack('Q', count[:8])[0] + 1)
    except OSError:
        break
time.sleep(60)
if os.getpid() != main:
    os._exit(0)
""",
    "the dead": """
import os, time
for _ in range(64 * max(4, len(os.sched_getaffinity(0))) + 100):
    os.posix_spawn("/bin/true", ["true"], {})
time.sleep(60)
""",
    "threads": """
import os, threading
threading.stack_size(1 << 16)
for _ in range(64 * max(4, len(os.sched_getaffinity(0))) + 100):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
threading.Event().wait()
""",
    "chain that exits": """
import os, time
def chain(n):
    if n and os.fork() == 0:
        os.setsid()
        chain(n - 1)
    if n == 0:
        time.sleep(60)
    os._exit(0)
if os.fork() == 0:
    chain(20)
time.sleep(0.3)
""",
    "comet of shells": """
import os, subprocess, time
text = '[ $1 -gt 200 ] && exec sleep 60\\nsetsid "$0" $(($1 + 1)) & exit\\n'
open('comet', 'w').write('#!/bin/sh\\n' + text)
os.chmod('comet', 0o755)
subprocess.run(['./comet', '0'], env={'PATH': os.environ['PATH']})
time.sleep(0.05)
""",
    "another kernel's name": """
import ctypes, os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        for _ in range(100):
            ctypes.CDLL(None).prctl(15, b'nbk0123456789ab', 0, 0, 0)
        time.sleep(60)
    os._exit(0)
time.sleep(0.3)
""",
    "no subreaper, no death signal": """
import ctypes, os, time
prctl = ctypes.CDLL(None).prctl
prctl(36, 0, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    prctl(1, 0, 0, 0, 0)
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
time.sleep(0.3)
""",
    "kernel that ends first": """
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
os._exit(0)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outlives_its_kernel_and_other_sessions_live(level: str) -> None:
    code = """
answer = {}
with Kernels(home=HOME, spares=0, preloads=(), processes=64, memory_bytes=4 << 30) as kernels:
    kernels.run('kept = 42', session='person', sandbox=level)
    before = set(others())
    for name, bomb in bombs.items():
        done = kernels.run(bomb, sandbox=level, timeout=30, grace=0.2)
        left = settle(lambda: not set(others()) - before) or sorted(set(others()) - before)
        answer[name] = [done.status, left]
    done = kernels.run('print(kept)', session='person', sandbox=level)
    answer['person'] = [done.status, done.stdout]
answer['after close'] = settle(lambda: not others()) or others()
answer['folders'] = [path.name for path in pathlib.Path(tempfile.gettempdir()).glob('nbk-*')]
"""
    answer = run_apart(code, level=level, bombs=BOMBS)
    assert {name: answer[name][1] for name in BOMBS} == dict.fromkeys(BOMBS, True)
    assert [answer[name][0] for name in ("fork bomb", "the dead", "threads")] == ["process_limit"] * 3
    assert answer["person"] == ["ok", "42\n"]
    assert (answer["after close"], answer["folders"]) == (True, [])


EATERS = {
    "mapped nowhere": "f = [os.memfd_create('x') for _ in range(5)]\nfor one in f: fill(one, 120)\ntime.sleep(60)",
    "by orphans": (
        "for _ in range(5):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0:\n            os.setsid()\n"
        "            x = bytearray(os.urandom(1000)) * 120_000; time.sleep(60)\n"
        "        os._exit(0)\ntime.sleep(60)"
    ),
    "memory files of orphans": (
        "for _ in range(5):\n    if os.fork() == 0:\n"
        "        if os.fork() == 0:\n            fill(os.memfd_create('x'), 120); time.sleep(60)\n"
        "        os._exit(0)\ntime.sleep(60)"
    ),
    "while the family grows": (
        "fill(os.memfd_create('x'), 420)\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "    time.sleep(0.09)\ntime.sleep(60)"
    ),
}
FILL = """
import os, time
def fill(descriptor, megabytes):
    block = bytes(1 << 20)
    for _ in range(megabytes):
        os.write(descriptor, block)
"""


# Each of them takes a second; the first holds what the others hold of more places.
@pytest.mark.slow
@pytest.mark.parametrize("names", [["mapped nowhere"], [*EATERS][1:]])
def test_memory_is_counted_wherever_it_lies(names: list[str]) -> None:
    code = """
answer = {}
with Kernels(home=HOME, spares=0, preloads=(), processes=64, memory_bytes=400 << 20) as kernels:
    for name, eater in eaters.items():
        done = kernels.run(fill + eater, timeout=60, grace=0.2)
        answer[name] = done.status
    # 300 MB and the interpreter; were what is mapped counted twice, it would be above the cap.
    half = fill + "import mmap\\nf = [os.memfd_create('x') for _ in range(2)]\\nfor one in f: fill(one, 100)\\n"
    answer['below the cap'] = kernels.run(half + "m = mmap.mmap(f[0], 100 << 20); m[:]; time.sleep(1)").status
"""
    answer = run_apart(code, eaters={name: EATERS[name] for name in names}, fill=FILL)
    assert answer == {**dict.fromkeys(names, "memory_limit"), "below the cap": "ok"}


ON_THE_SUPERVISOR = {
    "descriptors that are not sockets": """
open('f', 'w').close()
fd = os.open('/dev/null', os.O_RDWR)
for _ in range(300):
    connect(fd, 'f')
print('went on')
""",
    "the owner's name": """
libc.prctl(15, b'Tgid:%d' % owner, 0, 0, 0)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind('mine')
listener.listen()
if os.fork() == 0:
    for fd in range(80):
        connect(fd, 'mine')
    os._exit(0)
os.wait()
print('went on')
""",
    "a timeout that is reset": """
import threading
full = socket.socket(socket.AF_UNIX)
full.bind('full')
full.listen(0)
socket.socket(socket.AF_UNIX).connect('full')
held = [socket.socket(socket.AF_UNIX) for _ in range(3)]
c = socket.socket(socket.AF_UNIX)
if os.fork() == 0:
    end = time.time() + 3
    while time.time() < end:
        libc.setsockopt(c.fileno(), 1, 21, struct.pack('ll', 0, 0), 16)
    os._exit(0)
end = time.time() + 1
while time.time() < end:
    connect(c.fileno(), 'full')
print('went on')
""",
    "descriptors of the supervisor": """
reached = []
for fd in range(64):
    for path in (f'//proc/self/fd/{fd}', f'/proc/./self/fd/{fd}', f'/proc/self/../self/fd/{fd}'):
        try:
            os.chmod(path, 0o600)
            reached.append(path)
        except OSError:
            pass
    os.symlink(f'/proc/self/fd/{fd}', f'l{fd}')
    try:
        os.chmod(f'l{fd}', 0o600)
        reached.append(f'l{fd}')
    except OSError:
        pass
print(reached or 'went on')
""",
    "nonsense": """
for number in (42, 268, 280, 188, 91):
    for value in (0, 1, -1, 1 << 31, 1 << 62):
        libc.syscall(number, *[ctypes.c_long(value)] * 6)
print('went on')
""",
}
CONNECT = """
import ctypes, os, socket, struct, time
libc = ctypes.CDLL(None, use_errno=True)
def connect(fd, path):
    address = struct.pack('H', 1) + os.fsencode(path) + b'\\0'
    return libc.connect(fd, address, len(address))
"""


@pytest.mark.slow
@pytest.mark.skipif("strict" not in LEVELS, reason="no process has a supervisor on this host")
def test_the_supervisor_of_system_calls_cannot_be_taken_over() -> None:
    code = """
answer = {}
import socket
victim = socket.socket()
victim.bind(('127.0.0.1', 0))
def descriptors():
    return len(os.listdir(f'/proc/{zygote}/fd'))
with Kernels(home=HOME, spares=0, preloads=()) as kernels:
    kernels.run('kept = 42', session='person', sandbox='strict')
    zygote = kernels._backends._backends['forked'].zygotes.pid
    before = descriptors()
    for name, attack in attacks.items():
        began = time.monotonic()
        done = kernels.run(connect + attack, sandbox='strict', timeout=8, grace=0.5, variables={'owner': os.getpid()})
        answer[name] = [done.status, done.stdout, time.monotonic() - began < 40]
    answer['descriptors'] = settle(lambda: descriptors() <= before) or descriptors() - before
    done = kernels.run('print(kept)', session='person', sandbox='strict')
    answer['person'] = [done.status, done.stdout]
    try:
        victim.getpeername()
        answer['victim'] = 'connected'
    except OSError:
        answer['victim'] = 'untouched'
"""
    answer = run_apart(code, attacks=ON_THE_SUPERVISOR, connect=CONNECT)
    fine = ["ok", "went on\n", True]
    assert {name: answer[name] for name in ON_THE_SUPERVISOR if answer[name] != fine} == {}
    assert (answer["descriptors"], answer["person"], answer["victim"]) == (True, ["ok", "42\n"], "untouched")


@pytest.mark.parametrize("level", LEVELS)
def test_the_owners_environment_and_memory_stay_closed(level: str) -> None:
    if capabilities().landlock_abi < 2:
        pytest.skip("this kernel has no Landlock of ABI 2, so level limits leaves /proc as it is")
    code = """
answer = {}
look = "import os, sys\\nfor name in ('environ', 'mem', 'maps', 'fd/0', 'cwd/.', 'root/.'):\\n"
look += "    try:\\n        os.close(os.open(f'/proc/{owner}/{name}', os.O_RDONLY))\\n        print(name)\\n"
look += "    except OSError: pass\\n"
with Kernels(home=HOME, spares=0, preloads=()) as kernels:
    done = kernels.run(look, sandbox=level, variables={'owner': os.getpid()})
    answer['read'] = done.stdout
    answer['work'] = kernels.run("!echo $((6*7))", sandbox=level).stdout.split()
"""
    assert run_apart(code, level=level) == {"read": "", "work": ["42"]}


@pytest.mark.parametrize("had", mostly_slow([None, 'sandbox = "strict"\n'], 2), ids=["new", "changed"])
def test_a_script_cannot_loosen_the_next_run_in_its_folder(kernels: Kernels, tmp_path: Path, had: str | None) -> None:
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-commit").write_text("#!/bin/sh\n")
    if had is not None:
        (tmp_path / "nbtools.toml").write_text(had)
    plant = """
import os, subprocess
open('nbtools.toml', 'w').write('sandbox = "off"')
open('.git/hooks/pre-commit', 'w').write('#!/bin/sh\\nid')
open('.git/hooks/post-commit', 'a').write('id')
open('result.txt', 'w').write('result')
subprocess.Popen(['sh', '-c', 'while :; do echo x >> nbtools.toml; done'])
"""
    done = kernels.run(plant, sandbox="strict", cwd=tmp_path, timeout=20)
    assert done.ok, done
    assert ["nbtools.toml" in note for note in done.notes if "may not be changed" in note] == [True]

    def is_as_before() -> bool:
        file = tmp_path / "nbtools.toml"
        return (file.read_text() if file.exists() else None) == had

    time.sleep(0.05)  # the kernel is closed a moment after the answer
    wait_until(is_as_before)
    assert (hooks / "post-commit").read_text() == "#!/bin/sh\n"
    assert not (hooks / "pre-commit").exists()
    assert (tmp_path / "result.txt").read_text() == "result"
    assert (tmp_path / "nbtools.toml.from-script").exists()
    # What a person runs may change them.
    assert kernels.run("open('nbtools.toml', 'w').write('')", sandbox="limits", cwd=tmp_path).ok
    assert (tmp_path / "nbtools.toml").read_text() == ""


def _is_a_working_folder(folder: Path) -> bool:
    """Tell whether a process has this working folder."""
    there = folder.stat()
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if os.path.samestat(entry.stat(), there):
                return True
    return False


@pytest.mark.parametrize("language", ["python", "bash"])
def test_once_a_script_has_ended_nothing_of_it_writes_and_what_its_person_writes_stays(
    kernels: Kernels, tmp_path: Path, language: str
) -> None:
    held, beat = tmp_path / ".git/config", tmp_path / "beat"
    held.parent.mkdir()
    held.write_text("[core]\n")
    loop = "while True: open('.git/config', 'a').write('x'), open('beat', 'a').write('x')"
    # It says that it tracks shared memory, which gives a process a moment more to live.
    words = [sys.executable, "-c", loop, "multiprocessing.resource_tracker"]
    begin = f"setsid {shlex.join(words)} > /dev/null 2>&1 &\nuntil [ -s beat ]; do sleep 0.01; done"
    if language == "python":
        begin = f"""
import os, subprocess, time
subprocess.Popen({words!r}, start_new_session=True)
while not os.path.exists("beat"): time.sleep(0.01)
"""
    done = kernels.run(begin, language=language, sandbox="strict", cwd=tmp_path, timeout=60)
    size = beat.stat().st_size
    assert done.ok, done
    assert [note for note in done.notes if ".git/config may not be changed" in note]
    assert held.read_text() == "[core]\n"
    held.write_text("[core]\nmine = 1\n")
    wait_until(lambda: not _is_a_working_folder(tmp_path))
    assert (held.read_text(), beat.stat().st_size) == ("[core]\nmine = 1\n", size)


def test_what_git_runs_stays_as_it_was(kernels: Kernels, tmp_path: Path) -> None:
    held = {".git/config": "[core]\n", ".git/hooks/lib.sh": "true\n"}
    for name, text in held.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    loose = {
        ".git/config": "[core]\nfsmonitor = id",
        ".git/config.worktree": "[core]\nfsmonitor = id",
        ".git/commondir": "../evil",
        ".git/hooks/lib.sh": "id",
        ".git/hooks/pre-commit": "id",
    }
    plant = """
import pathlib
for name, text in loose.items():
    pathlib.Path(name).write_text(text)
"""
    done = kernels.run(plant, sandbox="strict", cwd=tmp_path, variables={"loose": loose}, timeout=60)
    assert done.ok, done
    assert {name for name in loose if not any(name in note for note in done.notes)} == set()
    assert {name: (tmp_path / name).read_text() for name in loose if (tmp_path / name).exists()} == held
    assert (tmp_path / ".git/hooks/lib.sh.from-script").read_text() == "id"


def test_a_link_in_the_place_of_hooks_or_repository_is_taken_away(kernels: Kernels, tmp_path: Path) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("true\n")
    (tmp_path / ".git/config").write_text("[core]\n")
    plant = """
import os, pathlib
os.rename(kind, "aside")
pathlib.Path("evil").mkdir()
pathlib.Path("evil/pre-commit").write_text("id")
pathlib.Path("evil/config").write_text("id")
os.symlink(os.path.abspath("evil"), kind)
"""
    for kind in (".git/hooks", ".git"):
        done = kernels.run(plant, sandbox="strict", cwd=tmp_path, variables={"kind": kind}, timeout=60)
        assert done.ok, done
        assert (tmp_path / ".git/hooks/pre-commit").read_text() == "true\n"
        assert (tmp_path / ".git/config").read_text() == "[core]\n"
        assert not (tmp_path / kind).is_symlink()
        for name in ("aside", "evil"):
            shutil.rmtree(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "bash"])
def test_what_a_session_has_started_cannot_plant_between_its_runs(
    kernels: Kernels, tmp_path: Path, language: str
) -> None:
    loop = "while :; do echo x >> beat; echo x >> nbtools.toml; sleep 0.001; done"
    begin, wait = f"setsid sh -c '{loop}' > /dev/null 2>&1 &", "until [ -e nbtools.toml ]; do sleep 0.01; done; echo 42"
    if language == "python":
        begin = f"""
import os, subprocess, threading, time
subprocess.Popen(['setsid', 'sh', '-c', {loop!r}])
def write():
    while True:
        open('beat', 'a').write('y')
        time.sleep(0.001)
threading.Thread(target=write, daemon=True).start()
x = 42
"""
        wait = "while not os.path.exists('nbtools.toml'): time.sleep(0.01)\nprint(x)"
    name, beat = f"guarded {language} {uuid.uuid4().hex}", tmp_path / "beat"  # a second try has none of the first

    def run(code: str) -> Execution:
        return kernels.run(code, session=name, language=language, sandbox="strict", cwd=tmp_path, timeout=60)

    assert run(begin).ok
    for _ in range(2):
        done = run(wait)
        assert done.stdout == "42\n"
        assert [note for note in done.notes if "nbtools.toml may not be changed" in note]
        if language == "python":
            assert "x" in [one["name"] for one in kernels.variables(name)]
        # What was writing when it was stopped may end that; then it stands still for as long as many beats take.
        wait_until(lambda: beat.stat().st_size == (kernels.run("print(1)").ok and beat.stat().st_size))
        assert not (tmp_path / "nbtools.toml").exists()
    kernels.stop(name)
    assert not (tmp_path / "nbtools.toml").exists()


PARALLEL = {
    "joblib with large arrays": """
import numpy as np
from joblib import Parallel, delayed
def first(a, i): return float(a[i])
print(Parallel(n_jobs=2)(delayed(first)(np.ones(500_000), i) for i in range(2)))
""",
    "a spawned pool": """
import multiprocessing as mp
with mp.get_context('spawn').Pool(2) as pool: print(pool.map(float, [1, 1]))
""",
    "a segment that stays": """
from multiprocessing.shared_memory import SharedMemory
left = SharedMemory(create=True, size=1 << 20)
left.buf[0] = 1
print([1.0, 1.0])
""",
}


@pytest.mark.own_zygote
@pytest.mark.parametrize(
    ("level", "own"),
    [
        ("limits", False),
        pytest.param("strict", False, marks=pytest.mark.slow),
        pytest.param("strict", True, marks=pytest.mark.slow),
    ],
)
def test_parallel_work_leaves_nothing_in_shared_memory(level: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if level not in LEVELS or (own and not capabilities().shared_memory):
        pytest.skip("no /dev/shm of its own is made for this level, or on this host")
    host = dataclasses.replace(capabilities(), shared_memory=own)
    monkeypatch.setattr(confine, "capabilities", lambda: host)
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208
    with Kernels(spares=0, preloads=("numpy",)) as kernels:
        for name, code in PARALLEL.items():
            if "joblib" in code and importlib.util.find_spec("joblib") is None:
                continue
            done = kernels.run(code, sandbox=level, timeout=60)
            assert (name, done.status, done.stdout) == (name, "ok", "[1.0, 1.0]\n"), done.error

    def left() -> set[str]:
        names = set(os.listdir("/dev/shm")) - before  # noqa: PTH208
        return {name for name in names if name.startswith(("psm_", "sem.", "joblib_", "loky"))}

    wait_until(lambda: not left())  # what tests in another process make meanwhile goes by itself
