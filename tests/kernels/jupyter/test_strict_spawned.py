"""Strict kernels without a zygote, and kernels that cannot be strict."""

import socket
from pathlib import Path

import pytest

from nbtools.confine import capabilities
from nbtools.errors import SandboxUnavailable
from nbtools.ground import aio
from nbtools.kernels import KernelOptions, Kernels, RunContext
from nbtools.kernels.jupyter.spawned import SpawnedBackend

pytestmark = [
    pytest.mark.races,
    pytest.mark.skipif(not capabilities().can("strict"), reason="; ".join(capabilities().missing)),
]
CODE = """
import os, shutil, socket, subprocess
def refused(action):
    try:
        action()
    except OSError as exc:
        return type(exc).__name__
    return 'done'
print(refused(socket.socket), refused(lambda: socket.socket(socket.AF_UNIX).connect(path)))
print(refused(lambda: open('/etc/shadow')), refused(lambda: os.kill(os.getppid(), 0)))
open('f', 'w').close(); os.chmod('f', 0o700); shutil.copy('f', 'g')
print(subprocess.check_output('echo child', shell=True).decode().strip())
!echo terminal
"""


def test_a_spawned_kernel_can_be_strict(tmp_path):
    path = str(tmp_path / "s")
    inside = tmp_path / "inside"
    inside.mkdir()

    async def work():
        backend = SpawnedBackend()
        try:
            kernel = await backend.open(KernelOptions(sandbox="strict", network=False, cwd=inside))
            context = RunContext(cwd=inside, variables={"path": path})
            return kernel.sandbox, await kernel.run(CODE, context=context), await kernel.run("print(2)")
        finally:
            await backend.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        level, done, after = aio.run(work())
    assert (level, done.status) == ("strict", "ok"), (done.error, done.stderr)
    expected = ["PermissionError PermissionError", "PermissionError PermissionError", "child", "terminal"]
    assert done.stdout.split() == " ".join(expected).split()
    assert after.stdout == "2\n"
    assert sorted(found.name for found in inside.iterdir()) == ["f", "g"]


def test_a_foreign_kernel_cannot_be_strict(tmp_path):
    with Kernels(home=Path(tmp_path), spares=0, sandbox="strict") as kernels:
        done = kernels.run("print(1)", language="kernel:python3", timeout=60)
        assert (done.stdout, done.sandbox) == ("1\n", "limits")
        assert any("strict" in note for note in done.notes)
        with pytest.raises(SandboxUnavailable):
            kernels.run("print(1)", language="kernel:python3", sandbox="strict")
