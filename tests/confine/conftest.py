"""Run Python text in a child that confines itself first; what it raises comes back by the name of the exception."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nbtools.confine import capabilities

REPOSITORY = Path(__file__).resolve().parents[2]

HARNESS = """
import json, os, sys, traceback
sys.path.insert(0, sys.argv[1])
order = json.loads(sys.argv[2])
import socket, select, threading
from nbtools.confine import Confinement, Supervisor, apply, lock_network
confinement = Confinement.from_dict(order["confinement"])
near, far = socket.socketpair()
pid = os.fork() if confinement.supervised else 0
if pid:
    near.close()
    _, handed, _, _ = socket.recv_fds(far, 1, 1)
    supervisor = Supervisor(handed[0], order["confinement"]["write"])
    while supervisor.answer():
        select.select([supervisor], [], [])
    supervisor.close()
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
answer = {}
names = {"answer": answer, **order["names"]}
exec(order["before"], names)
applied = apply(confinement)
if applied.listener is not None:
    socket.send_fds(near, [b"x"], [applied.listener])
    os.close(applied.listener)
near.close(); far.close()
if confinement.level == "strict":
    lock_network(network=confinement.network, supervised=confinement.supervised)
for name, code in order["cases"].items():
    try:
        exec(code, names)
        answer.setdefault(name, "done")
    except BaseException as exc:
        answer[name] = type(exc).__name__
        if os.environ.get("SHOW_TRACEBACKS"):
            traceback.print_exc()
answer["applied"] = [applied.level, list(applied.missing)]
sys.stdout.flush()
os.write(order["out"], json.dumps(answer, default=str).encode())
os._exit(0)
"""


@pytest.fixture
def confined(tmp_path, inside):
    """Return a function: cases by name, and what the child is confined to, to what became of each case."""

    def run(cases, *, before="", names=None, timeout=60, env=None, **confinement):
        fields = {"level": "strict", "write": [str(inside)], **confinement}
        with (tmp_path / "answer.json").open("w+") as out:
            order = {"confinement": fields, "cases": cases, "before": before, "names": names or {}, "out": out.fileno()}
            done = subprocess.run(
                [sys.executable, "-c", HARNESS, str(REPOSITORY), json.dumps(order)],
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=inside,
                pass_fds=[out.fileno()],
                env=env,
                start_new_session=True,
            )
            out.seek(0)
            text = out.read()
        assert text, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
        answer = json.loads(text)
        answer["output"] = done.stdout + done.stderr
        return answer

    return run


@pytest.fixture
def inside():
    # Near the root: processes that talk by sockets in here are bound to paths of at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="nbt-") as folder:
        path = Path(folder) / "inside"
        path.mkdir()
        yield path


@pytest.fixture
def outside(inside):
    folder = inside.parent / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def strict_host():
    """Skip where the host cannot enforce the sandbox: then that it says so is tested elsewhere."""
    if not capabilities().can("strict"):
        pytest.skip("; ".join(capabilities().missing))
