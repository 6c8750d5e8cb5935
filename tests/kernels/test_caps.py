"""What a script may use up in all, however it spreads it: displays, files, memory in many places."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nbtools.confine import capabilities
from nbtools.kernels import Kernels, OutputLimits
from tests.apart import run_apart
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.races,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="families are looked up in /proc"),
]

LEVELS = ["limits", "strict"] if capabilities().can("strict") else ["limits"]


def test_displays_are_counted_in_the_kernel_and_by_what_is_shown_in_the_end() -> None:
    shown = "from IPython.display import display\ndef show(n, **o): return display({'a/b': 'x' * n}, raw=True, **o)\n"
    with Kernels(spares=0, preloads=(), limits=OutputLimits(display_bytes=100_000)) as kernels:
        large = kernels.run(shown + "show(200_000)\nshow(50_000)\nprint(get_ipython().kernel.displays._sent)")
        assert (large.status, large.truncated, large.stdout) == ("ok", True, "50000\n")
        assert [len(one["a/b"]) for one in large.displays] == [50_000]
        updated = kernels.run(
            shown + "h = show(1, display_id=True)\nfor n in range(60): h.update({'a/b': 'x' * 60_000}, raw=True)"
        )
        assert (updated.status, updated.truncated, len(updated.displays)) == ("ok", False, 1)
        endless = kernels.run(shown + "while True: show(90_000)", timeout=60)
        assert (endless.status, len(endless.displays)) == ("output_limit", 1)
        endless = kernels.run(
            shown + "h = show(1, display_id=True)\nwhile True: h.update({'a/b': 'x' * 90_000}, raw=True)"
        )
        assert (endless.status, len(endless.displays)) == ("output_limit", 1)


# Each writes more than 8 MB in all, no file of them more than 100 kB, and then waits to be ended.
WRITERS = {
    "many small files": "for n in range(200): open(f'{n}', 'wb').write(bytes(100_000))",
    "in a folder for temporary files": (
        "import os, tempfile\nos.chdir(tempfile.mkdtemp())\n"
        "for n in range(200): open(f'{n}', 'wb').write(bytes(100_000))"
    ),
    "by children that exit": (
        "import subprocess\nhead = ['head', '-c', '100000', '/dev/zero']\n"
        "for n in range(120): subprocess.run(head, stdout=open(f'{n}', 'w'))"
    ),
    "empty files": "for n in range(2_500): open(f'{n}', 'wb').close()",
    "deleted files": (
        "import os\nheld = [open(f'{n}', 'wb', 0) for n in range(120)]\n"
        "for n, one in enumerate(held): os.unlink(f'{n}'); one.write(bytes(100_000))"
    ),
    "too deep for a path": (
        "import os\nfor n in range(60): os.mkdir('d' * 100); os.chdir('d' * 100)\n"
        "for n in range(200): open(f'{n}', 'wb').write(bytes(100_000))"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_all_files_of_a_script_have_a_limit_together(level: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(9_000_000))
    with Kernels(spares=0, preloads=(), file_bytes=8_000_000) as kernels:
        for name, writer in WRITERS.items():
            done = kernels.run(f"{writer}\nimport time\nwhile True: time.sleep(0.01)", sandbox=level, timeout=60)
            assert (name, done.status) == (name, "file_limit")
            assert "file limit" in str(done.to_error())
        # What was there before does not count, nor do links to one file, nor what was deleted again.
        fair = (
            "import os\nopen('f', 'wb').write(bytes(5_000_000))\nfor n in range(20): os.link('f', f'l{n}')\n"
            "for n in range(20): open('g', 'wb').write(bytes(2_000_000)); os.unlink('g')\n"
            "import time\nfor n in range(80): time.sleep(0.01)"
        )
        assert kernels.run(fair, sandbox=level, cwd=tmp_path, timeout=60).ok
        assert kernels.run("for n in range(300): open(f'{n}', 'wb').write(bytes(100))", sandbox=level).ok


def test_a_limit_of_files_below_what_a_kernel_writes_itself_stops_no_script() -> None:
    with Kernels(spares=0, preloads=(), file_bytes=500_000) as kernels:
        done = kernels.run("print('here')\nopen('large', 'wb').write(bytes(600_000))", timeout=60)
        assert (done.stdout, done.status, done.error is not None and done.error.name) == ("here\n", "error", "OSError")


def test_a_script_that_cannot_begin_says_why(tmp_path: Path) -> None:
    with Kernels(spares=0, preloads=()) as kernels:
        assert kernels.run("import os\nos.chdir = None", session="s", cwd=tmp_path).ok
        done = kernels.run("print(1)", session="s", cwd=tmp_path, timeout=60)
        assert (done.status, done.error is not None and done.error.name) == ("error", "TypeError")


@pytest.mark.slow
def test_what_a_script_closes_or_nests_is_counted_and_removed() -> None:
    code = """
answer = {}
with Kernels(home=HOME, spares=0, preloads=(), file_bytes=8_000_000) as kernels:
    for name, closed in places.items():
        done = kernels.run(closed + "\\nimport time\\nwhile True: time.sleep(0.01)", timeout=30)
        answer[name] = done.status
    nested = "import os\\nfor n in range(1_200): os.mkdir('d'); os.chdir('d')\\nopen('f', 'w').write('x')"
    answer['nested'] = kernels.run(nested).status
    place = kernels._folder.path
    answer['left'] = settle(lambda: not [*place.glob('j*')], 60) or [path.name for path in place.glob('j*')]
answer['after close'] = [path.name for path in pathlib.Path(tempfile.gettempdir()).glob('nbk-*')]
"""
    places = {
        "closed to its owner": "import os\nos.mkdir('d')\nopen('d/f', 'w').write('x')\nos.chmod('d', 0)",
        "the folder itself": "import os\nos.chmod('.', 0)",
    }
    answer = run_apart(code, places=places)
    assert answer == {**dict.fromkeys(places, "file_limit"), "nested": "ok", "left": True, "after close": []}


@pytest.mark.slow
def test_what_a_session_leaves_counts_in_the_next_run_and_between_them() -> None:
    with Kernels(spares=0, preloads=(), file_bytes=8_000_000) as kernels:
        for n in range(2):
            assert kernels.run(f"open('{n}', 'wb').write(bytes(3_500_000))", session="s").ok
        # Who has used no hundredth of a second of the processor since the last look is not looked at.
        work = "def work():\n    open('2', 'wb').write(bytes(3_500_000))\n    sum(range(10_000_000))\n"
        later = f"import threading\n{work}threading.Timer(0.5, work).start()"
        assert kernels.run(later, session="s").ok
        wait_until(lambda: kernels.state_of("s") == "dead")
        assert kernels.run("print(1)", session="s").stdout == "1\n"


# What is held in five kinds of places, `size` megabytes in each, until the script is ended or all of it stands.
SPREAD = """
import os, time
from IPython.display import display
block = os.urandom(1 << 20)
def stand():
    open(f'there{os.getpid()}', 'w').close()
    time.sleep(600)
held = os.memfd_create('held')
for _ in range(size): os.write(held, block)
if os.fork() == 0:
    mine = block * size
    stand()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        mine = block * size
        stand()
    os._exit(0)
if os.fork() == 0:
    far = os.memfd_create('far')
    for _ in range(size): os.write(far, block)
    stand()
bundles = [chr(97 + n) * (size * (1 << 20) // 20) for n in range(20)]
for one in bundles: display({'text/plain': '', 'a/b': one}, raw=True)
while sum(name.startswith('there') for name in os.listdir('.')) < 3: time.sleep(0.01)
time.sleep(2 if size < 200 else 600)
print('stood')
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_gigabyte_is_a_gigabyte_wherever_it_lies(level: str) -> None:
    code = """
answer = {}
from nbtools.kernels import OutputLimits
shown = OutputLimits(display_bytes=300 << 20)
with Kernels(home=HOME, spares=0, preloads=(), memory_bytes=1 << 30, limits=shown) as kernels:
    for size in (150, 240):
        done = kernels.run(spread, sandbox=level, timeout=60, variables={'size': size})
        answer[str(size)] = [done.status, done.stdout]
    answer['next'] = kernels.run('print(1)', sandbox=level).stdout
answer['left'] = settle(lambda: not others()) or others()
"""
    answer = run_apart(code, spread=SPREAD, level=level)
    assert answer == {"150": ["ok", "stood\n"], "240": ["memory_limit", ""], "next": "1\n", "left": True}


@pytest.mark.slow
@pytest.mark.own_zygote
def test_a_display_that_memory_does_not_hold_is_told_as_the_limit() -> None:
    near = """
import mmap, resource
from IPython.display import display
soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
used = int(next(line for line in open('/proc/self/status') if line.startswith('VmData')).split()[1]) * 1024
text = 'é' * (4 << 20)
held = mmap.mmap(-1, soft - used - room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, len(held), mmap.PAGESIZE): held[place] = 1  # what is only promised is seen at times, not always
try:
    display({'a/b': text}, raw=True)
except MemoryError:
    print('no memory')
"""
    with Kernels(spares=0, preloads=(), memory_bytes=512 << 20) as kernels:
        for megabytes in (8, 20, 26, 32, 40, 60):
            done = kernels.run(near, timeout=60, variables={"room": megabytes << 20})
            assert done.status in {"ok", "memory_limit"}, (megabytes, done, done.signal)
            assert done.status == "memory_limit" or "no memory" in done.stdout or done.displays or done.stderr


@pytest.mark.parametrize("backend", ["forked", "spawned"])
def test_a_script_that_leaves_no_descriptor_is_heard(backend: str) -> None:
    code = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\nheld = []\n"
    code += "try:\n    while True: held.append(open('/dev/null'))\nexcept OSError: pass\nprint('heard')"
    with Kernels(backend, spares=0, preloads=()) as kernels:
        done = kernels.run(code)
        assert (done.status, done.stdout) == ("ok", "heard\n")
        assert kernels.run("print(1)").stdout == "1\n"
