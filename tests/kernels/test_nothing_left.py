"""All that was tried against kernels, one after the other: through a process of one's own, and the shared one."""

from __future__ import annotations

import sys

import pytest

from tests.apart import run_apart
from tests.kernels.test_caps import WRITERS
from tests.kernels.test_walls import BOMBS, CONNECT, EATERS, FILL, LEVELS, ON_THE_SUPERVISOR, PARALLEL

pytestmark = [
    pytest.mark.own_zygote,
    pytest.mark.races,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="families are looked up in /proc"),
]

ENDINGS = {
    "exit": "import os; os._exit(3)",
    "signal": "import os; os.kill(os.getpid(), 11)",
    "deaf": "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: time.sleep(1)",
    "flood": "while True: print('x' * 10_000)",
    "sleepers": "import threading, time\nfor _ in range(50): threading.Thread(target=time.sleep, args=(600,)).start()",
    "segments": (
        "import os, multiprocessing as m\nfrom multiprocessing.shared_memory import SharedMemory\n"
        "held = [SharedMemory(create=True, size=1 << 16) for _ in range(5)]\n"
        "locks = [m.get_context('spawn').Lock() for _ in range(5)]\nos._exit(0)"
    ),
    "sockets": "import socket\nfor n in range(50): socket.socket(socket.AF_UNIX).bind(f's{n}')",
}


# Each wall and each kind of process once: what walls keep in does not depend on who forks.
@pytest.mark.parametrize(("level", "warm_s"), [*zip(LEVELS * 2, (0, 2), strict=False)])
def test_after_all_attacks_nothing_is_left_and_what_lived_before_lives(level: str, warm_s: int) -> None:
    code = """
answer = {'went wrong': []}
def mounts():
    return sorted(pathlib.Path('/proc/self/mounts').read_text().splitlines())
def in_memory():
    mine = [entry for entry in os.scandir('/dev/shm') if entry.stat(follow_symlinks=False).st_uid == os.getuid()]
    return {entry.name for entry in mine}
def folders():
    return {path.name for path in pathlib.Path(tempfile.gettempdir()).iterdir()} - {'fontlist-v390.json'}
before = mounts(), in_memory(), folders()
options = {'home': HOME, 'spares': 1, 'preloads': (), 'warm_s': warm_s, 'processes': 64}
with Kernels(memory_bytes=400 << 20, **options) as small, Kernels(file_bytes=8_000_000, **options) as narrow:
    lived = [(own, name, sandbox) for own in (small, narrow) for name, sandbox in (('a', 'limits'), ('b', level))]
    for own, name, sandbox in lived:
        own.run(f'kept = {name!r}', session=name, sandbox=sandbox)
    for name, (attack, timeout) in attacks.items():
        kernels = narrow if name in writers else small
        done = kernels.run(attack, sandbox=level, timeout=timeout, grace=0.2, variables={'owner': os.getpid()})
        answer[name] = done.status
        if kernels.run('print(6 * 7)', sandbox=level, timeout=60).stdout != '42\\n':
            answer['went wrong'].append(name)
    answer['lived'] = [own.run('print(kept)', session=name, sandbox=sandbox).stdout for own, name, sandbox in lived]
answer['processes'] = settle(lambda: not others(), 60) or others()
answer['mounts'] = mounts() == before[0]
answer['memory'] = settle(lambda: not in_memory() - before[1], 60) or sorted(in_memory() - before[1])
answer['folders'] = settle(lambda: not folders() - before[2]) or sorted(folders() - before[2])
"""
    # Each has the time that its limit needs on a busy machine; only what no limit ends is to run into it.
    attacks = {name: (text, 3 if name in ("deaf", "sleepers") else 30) for name, text in (BOMBS | ENDINGS).items()}
    attacks |= {name: (FILL + text, 60) for name, text in EATERS.items()}
    attacks |= {name: (f"{text}\nimport time\nwhile True: time.sleep(0.01)", 30) for name, text in WRITERS.items()}
    if level == "strict":
        attacks |= {name: (CONNECT + text, 8) for name, text in ON_THE_SUPERVISOR.items()}
    attacks |= {name: (text, 60) for name, text in PARALLEL.items() if "joblib" not in text}
    groups = [BOMBS, ENDINGS, EATERS, WRITERS, *([ON_THE_SUPERVISOR] if level == "strict" else [])]
    left_out = {name for group in groups for name, text in group.items() if text not in attacks[name][0]}
    assert not left_out, "two attacks have one name"
    answer = run_apart(code, seconds=900, level=level, warm_s=warm_s, attacks=attacks, writers=[*WRITERS])
    left = {name: answer[name] for name in ("processes", "mounts", "memory", "folders")}
    assert left == dict.fromkeys(left, True)
    assert (answer["went wrong"], answer["lived"]) == ([], ["a\n", "b\n"] * 2)
    assert {name: answer[name] for name in EATERS} == dict.fromkeys(EATERS, "memory_limit")
    assert {name: answer[name] for name in WRITERS} == dict.fromkeys(WRITERS, "file_limit")
    assert {answer[name] for name in ("fork bomb", "exit", "deaf", "flood")} == {
        *("process_limit", "died", "timeout", "output_limit")
    }
