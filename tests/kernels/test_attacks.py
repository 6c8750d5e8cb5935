"""A strict kernel as a model gets it: what it must not be able to do, and honest work that must go on."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nbtools.confine import capabilities
from nbtools.kernels import Kernels

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not capabilities().can("strict"), reason="; ".join(capabilities().missing)),
]

TRY = """
import json, os, resource, shutil, signal, socket, subprocess, sys, urllib.request
results = {}
def attempt(name, action):
    try:
        action()
        results[name] = 'done'
    except BaseException as exc:
        results[name] = type(exc).__name__
"""
REFUSED = {"PermissionError", "OSError", "gaierror", "URLError", "CalledProcessError", "ValueError", "MemoryError"}


@pytest.fixture(scope="module", params=[pytest.param("own process", marks=pytest.mark.own_zygote), "shared process"])
def kernels(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with Kernels(home=home, spares=0, preloads=(), memory_bytes=3 << 30) as made:
        yield made


@pytest.fixture
def attack(kernels, tmp_path):
    """Return a function that attempts lambdas, given as text by name, in a clean strict kernel."""
    work = tmp_path / "work"
    work.mkdir()

    def run(cases, *, variables=None, **options):
        lines = [TRY, *(f"attempt({name!r}, lambda: {action})" for name, action in cases.items())]
        lines.append("print(json.dumps(results))")
        done = kernels.run(
            "\n".join(lines), sandbox="strict", cwd=work, variables=variables or {}, timeout=60, **options
        )
        assert done.status == "ok", (done.error, done.stderr)
        assert done.sandbox == "strict"
        return json.loads(done.stdout.splitlines()[-1])

    return run


def assert_all_refused(results, also=()):
    assert {name: result for name, result in results.items() if result not in {*REFUSED, *also}} == {}


# Where the host allows it, other processes are not to be seen.
HIDDEN = ("FileNotFoundError",) if capabilities().own_processes else ()


def test_secrets_on_disk_stay_secret(attack, tmp_path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("key")
    cases = {
        "key": "open(key).read()",
        "shadow": "open('/etc/shadow').read()",
        "home": "os.listdir(home)",
        "by_shell": "subprocess.run(['cat', key], check=True)",
        "by_link": "(os.symlink(key, 'l'), open('l').read())",
        "by_proc": "open('/proc/self/root' + key).read()",
        "by_copy": "shutil.copy(key, '.')",
    }
    variables = {"key": str(tmp_path / ".ssh" / "id_rsa"), "home": str(Path.home())}
    assert_all_refused(attack(cases, variables=variables))


def test_secrets_of_the_environment_are_not_there(kernels, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-hidden-from-scripts")
    code = "import os\nprint([v for v in os.environ.values() if 'hidden' in v])\n"
    code += "print('hidden' in open('/proc/self/environ').read())"
    for level in ("limits", "strict"):
        assert kernels.run(code, sandbox=level, timeout=60).stdout == "[]\nFalse\n"


def test_nothing_outside_is_written_or_deleted(attack, tmp_path):
    file = tmp_path / "precious.txt"
    file.write_text("precious")
    file.chmod(0o600)
    cases = {
        "write": "open(file, 'w')",
        "delete": "os.unlink(file)",
        "rename": "os.rename(file, 'mine')",
        "replace": "(open('mine', 'w').close(), os.replace('mine', file))",
        "truncate": "os.truncate(file, 0)",
        "chmod": "os.chmod(file, 0o777)",
        "touch": "os.utime(file, (1, 1))",
        "tree": "shutil.rmtree(folder)",
        "new": "open(folder + '/new', 'w')",
        "tmp": "open('/tmp/nbtools-attack', 'w')",
        "python": "open(sys.prefix + '/attack.pth', 'w')",
        "by_shell": "subprocess.run(['rm', '-rf', file], check=True)",
    }
    before = file.stat()
    assert_all_refused(attack(cases, variables={"file": str(file), "folder": str(tmp_path)}))
    assert file.read_text() == "precious"
    assert (file.stat().st_mode, file.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.races
def test_other_processes_are_out_of_reach(attack):
    victim = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, "X_TOKEN": "hidden"}
    )
    cases = {
        "environ": "open(f'/proc/{victim}/environ').read()",
        "environ_of_owner": "open(f'/proc/{owner}/environ').read()",
        "environ_of_parent": "open(f'/proc/{os.getppid()}/environ').read()",
        "memory": "open(f'/proc/{victim}/mem', 'rb').read(1)",
        "kill": "os.kill(victim, signal.SIGKILL)",
        "kill_owner": "os.kill(owner, signal.SIGKILL)",
        "kill_zygote": "os.kill(os.getppid(), signal.SIGKILL)",
        "kill_by_shell": "subprocess.run(['kill', '-9', str(owner)], check=True)",
        "trace": "subprocess.run([sys.executable, '-c', trace, str(victim)], check=True, capture_output=True)",
        "namespace": "subprocess.run(['unshare', '-r', 'true'], check=True, capture_output=True)",
        "limit": "resource.prlimit(owner, resource.RLIMIT_CPU, (1, 1))",
        "priority": "os.setpriority(os.PRIO_PROCESS, owner, 19)",
    }
    trace = (
        "import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); "
        "sys.exit(0 if l.ptrace(16, int(sys.argv[1]), 0, 0) == 0 else 1)"
    )
    try:
        assert_all_refused(
            attack(cases, variables={"victim": victim.pid, "owner": os.getpid(), "trace": trace}), HIDDEN
        )
        assert victim.poll() is None
    finally:
        victim.communicate(b"\n")


@pytest.mark.races
def test_no_connection_leads_out(attack):
    path = f"/tmp/nbtools-{os.getpid()}-a.sock"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        local.bind(path)
        local.listen()
        cases = {
            "tcp": "socket.create_connection(('127.0.0.1', port), 2)",
            "udp": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port))",
            "dns": "socket.getaddrinfo('example.org', 80)",
            "http": "urllib.request.urlopen(f'http://127.0.0.1:{port}', timeout=2)",
            "unix": "socket.socket(socket.AF_UNIX).connect(path)",
            "datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
            "by_child": "subprocess.run([sys.executable, '-c', connect], check=True, capture_output=True)",
        }
        connect = f"import socket; socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2)"
        try:
            variables = {"port": tcp.getsockname()[1], "path": path, "connect": connect}
            assert_all_refused(attack(cases, variables=variables))
        finally:
            os.unlink(path)  # noqa: PTH108 - a socket


@pytest.mark.races
def test_kernels_cannot_reach_each_other(kernels, attack):
    try:
        kernels.run("import time; secret = 'x' * 1000", session="other", sandbox="strict", timeout=60)
        pid = next(session["pid"] for session in kernels.list() if session["name"] == "other")
        code = "import os, glob; print(os.environ['TMPDIR'])"
        temporary = kernels.run(code, session="other", sandbox="strict", timeout=60).stdout.strip()
        cases = {
            "environ": "open(f'/proc/{pid}/environ').read()",
            "kill": "os.kill(pid, signal.SIGKILL)",
            "files": "os.listdir(temporary)",
            "sockets": "os.listdir(os.path.dirname(temporary))",
            "write": "open(temporary + '/x', 'w')",
        }
        assert_all_refused(attack(cases, variables={"pid": pid, "temporary": temporary}), HIDDEN)
    finally:
        kernels.stop("other")


def test_limits_cannot_be_raised(attack):
    cases = {
        "memory": "resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
        "file": "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
        "core": "resource.setrlimit(resource.RLIMIT_CORE, (1, 1))",
        "allocation": "bytearray(20 << 30)",
        "oom": "open('/proc/self/oom_score_adj', 'w').write('-1000')",
    }
    assert_all_refused(attack(cases))


HONEST = {
    "numpy with threads": "import numpy as np; a = np.random.rand(500, 500); print(float((a @ a).sum()) > 0)",
    "pandas": (
        "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_csv('d.csv')\nprint(len(pd.read_csv('d.csv')) == 2)"
    ),
    "duckdb": "import duckdb; print(duckdb.sql('select 42').fetchall() == [(42,)])",
    "duckdb with files": (
        "import duckdb; duckdb.sql(\"copy (select * from range(100000)) to 'r.parquet'\")\n"
        "print(duckdb.sql(\"select count(*) from 'r.parquet'\").fetchall() == [(100000,)])"
    ),
    "pyarrow": (
        "import pyarrow as pa, pyarrow.parquet as pq; pq.write_table(pa.table({'a': [1]}), 'p.parquet')\n"
        "print(pq.read_table('p.parquet').num_rows == 1)"
    ),
    "sklearn": (
        "from sklearn.ensemble import RandomForestClassifier as F\n"
        "print(F(n_estimators=5, n_jobs=2, random_state=0).fit([[0], [1]] * 9, [0, 1] * 9).predict([[1]])[0] == 1)"
    ),
    "search in parallel": (
        "import numpy as np\nfrom sklearn.linear_model import Ridge\nfrom sklearn.model_selection import GridSearchCV\n"
        "x = np.arange(200_000.0).reshape(-1, 1)\n"
        "print(GridSearchCV(Ridge(), {'alpha': [0.1, 1]}, cv=2, n_jobs=2).fit(x, x[:, 0]).best_score_ > 0.5)"
    ),
    "matplotlib": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig('p.png'); print(True)",
    "subprocess": "import subprocess; print(subprocess.check_output(['echo', '42']) == b'42\\n')",
    "shell": "x = !echo 42\nprint(x == ['42'])",
    "terminal": "!echo terminal > there\nprint(open('there').read() == 'terminal\\n')",
    "multiprocessing": (
        "import multiprocessing as mp\nwith mp.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]) == [1, 2])"
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nprint(list(T(4).map(abs, [-1, -2])) == [1, 2])"
    ),
    "top-level await": "import asyncio\nawait asyncio.sleep(0)\nprint(True)",
    "async subprocess": (
        "import asyncio\np = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)\n"
        "print((await p.communicate(b'x'))[0] == b'x')"
    ),
    "temporary files": "import tempfile; tempfile.NamedTemporaryFile().write(b'x'); tempfile.mkdtemp(); print(True)",
    "modes and times": (
        "import os, shutil; open('f', 'w').close(); os.chmod('f', 0o755); shutil.copy2('f', 'g'); os.utime('g')\n"
        "print(oct(os.stat('g').st_mode)[-3:] == '755')"
    ),
    "sqlite": "import sqlite3; sqlite3.connect('x.db').execute('create table t(a)'); print(True)",
    "git": "!git init -q repo && cd repo && git config user.name x && echo fine\nprint(True)",
    "own environment": "import os; print(open('/proc/self/environ').read() != '' and os.cpu_count() > 0)",
}


@pytest.mark.races
@pytest.mark.slow
def test_honest_work_goes_on(kernels, tmp_path):
    missing = {name for name in ("pyarrow", "sklearn") if importlib.util.find_spec(name) is None}
    for name, code in HONEST.items():
        if not any(module in code for module in missing):
            done = kernels.run(code, session="honest", sandbox="strict", cwd=tmp_path, timeout=60)
            assert (done.status, done.sandbox) == ("ok", "strict"), (name, done.error, done.stderr)
            assert done.stdout.splitlines()[-1] == "True", (name, done.stdout + done.stderr)
            assert "Traceback" not in done.stderr, name
    kernels.stop("honest")
