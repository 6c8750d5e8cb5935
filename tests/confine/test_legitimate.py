"""What honest programs do, and must still be able to do in a strict process."""

import importlib.util
import os
import shutil
import sys

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("strict_host")]

POOL_WORK = """
import math
def work(n):
    return math.factorial(n) % 97
"""


def assert_all_done(answer, cases):
    assert {name: answer[name] for name in cases if answer[name] != "done"} == {}, answer["output"]


def test_files_processes_and_threads_work(confined, tmp_path):
    given = tmp_path / "given.csv"
    given.write_text("a,b\n1,2\n")
    cases = {
        "read_given": "assert open(given).read()",
        "write": "open('a.txt', 'w').write('x'); os.rename('a.txt', 'b.txt'); os.unlink('b.txt')",
        "folders": "os.makedirs('x/y'); shutil.rmtree('x')",
        "move_between_folders": "os.mkdir('m'); open('f', 'w').close(); os.rename('f', 'm/f'); os.link('m/f', 'h')",
        "temporary": "tempfile.TemporaryFile().write(b'x'); tempfile.mkdtemp()",
        "subprocess": "assert subprocess.run(['sh', '-c', 'echo $((6*7))'], capture_output=True).stdout == b'42\\n'",
        "python": "assert subprocess.check_output([sys.executable, '-c', 'print(1)']) == b'1\\n'",
        "pipes": "assert subprocess.check_output('seq 10 | sort -r | head -1', shell=True) == b'9\\n'",
        "threads": "t = threading.Thread(target=lambda: 1); t.start(); t.join()",
        "signals": "p = subprocess.Popen(['sleep', '9']); p.terminate(); assert p.wait() == -15",
        "asyncio": "asyncio.run(asyncio.sleep(0))",
        "async_subprocess": "asyncio.run(talk())",
        "socketpair": "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
        "shared_memory": "s = shared_memory.SharedMemory(create=True, size=10); s.close(); s.unlink()",
        "memory_map": "mmap.mmap(-1, 4096).close()",
        "memory_file": "os.close(os.memfd_create('x'))",
        "sqlite": "sqlite3.connect('x.db').execute('create table t(a)')",
        "locale_and_time": "time.tzset(); locale.setlocale(locale.LC_ALL, '')",
        "cpu_count": "os.cpu_count(); os.sched_getaffinity(0); os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "user": "pwd.getpwuid(os.getuid())",
        "zip": "shutil.make_archive('z', 'zip', '.', 'm'); zipfile.ZipFile('z.zip').extractall('unzipped')",
        "urandom": "os.urandom(8); random.SystemRandom().random(); uuid.uuid4()",
        "own_limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 4096)); os.nice(1)",
        "executor": "assert list(ThreadPoolExecutor(4).map(abs, [-1, -2])) == [1, 2]",
    }
    before = (
        "import asyncio, locale, mmap, os, pwd, random, resource, shutil, socket, sqlite3, subprocess, sys\n"
        "import tempfile, threading, time, uuid, zipfile\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from multiprocessing import shared_memory\n"
        "async def talk():\n"
        "    p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)\n"
        "    assert (await p.communicate(b'hi'))[0] == b'hi'\n"
    )
    assert_all_done(
        confined(cases, before=before, names={"given": str(given)}, read=[str(given)], network=False), cases
    )


def test_metadata_of_own_files_can_be_changed_under_supervision(confined, tmp_path):
    cases = {
        "chmod": "open('f', 'w').close(); os.chmod('f', 0o751); assert os.stat('f').st_mode & 0o777 == 0o751",
        "set_user_id_is_dropped": "os.chmod('f', 0o4751); assert os.stat('f').st_mode & 0o7777 == 0o751",
        "fchmod": "h = os.open('f', os.O_RDONLY); os.fchmod(h, 0o700); os.close(h)",
        "at": "d = os.open('.', os.O_RDONLY); os.chmod('f', 0o711, dir_fd=d); os.utime('f', (3, 4), dir_fd=d)",
        "utime": "os.utime('f', ns=(10**9, 2 * 10**9)); assert os.stat('f').st_mtime == 2",
        "utime_now": "os.utime('f'); assert time.time() - os.stat('f').st_mtime < 60",
        "utime_of_link": "os.symlink('f', 'l'); os.utime('l', (1, 2), follow_symlinks=False)",
        "link_has_it": "assert os.lstat('l').st_mtime == 2",
        "utime_by_descriptor": "h = os.open('f', os.O_RDONLY); os.utime(h, (7, 8)); os.close(h)",
        "through_proc": "h = os.open('f', os.O_RDONLY); os.chmod(f'/proc/self/fd/{h}', 0o755); os.close(h)",
        "absolute": "os.chmod(os.path.abspath('f'), 0o755)",
        "copy_of_attributes": "assert os.getxattr(marked, 'user.a') == b'v'; shutil.copy2(marked, 'i')",
        "own_owner": "os.chown('f', os.getuid(), -1); os.lchown('l', -1, os.getgid())",
        "copy": "shutil.copy('f', 'g'); shutil.copy2('f', 'h'); shutil.copytree('.', '../inside/tree')",
        "tools": "subprocess.run(tools, shell=True, check=True)",
    }
    tools = "cp -p f k && touch -d 2020-01-01 k && chmod +x k && tar cf t.tar f k && mkdir e && tar xf t.tar -C e"
    before = "import os, shutil, subprocess, time"
    marked = tmp_path / "marked"
    marked.write_text("x")
    os.setxattr(marked, "user.a", b"v")
    names = {"tools": f"cp -a {marked} j && {tools}", "marked": str(marked)}
    answer = confined(cases, before=before, names=names, read=[str(marked)], supervised=True)
    assert_all_done(answer, cases)


def test_own_local_sockets_can_be_connected_to_under_supervision(confined):
    before = """
import os, socket, threading
def echo(path, kind=socket.SOCK_STREAM):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(path)
    server.listen()
    client = socket.socket(socket.AF_UNIX, kind)
    client.settimeout(5)
    return server, client
def talk(path, to=None, kind=socket.SOCK_STREAM):
    server, client = echo(path, kind)
    client.connect(to or path)
    client.send(b'x')
    assert server.accept()[0].recv(1) == b'x'
    assert client.gettimeout() == 5
def fill():
    server, client = echo('full')
    server.listen(0)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    for c in clients:
        c.connect('full')
"""
    cases = {
        "relative": "talk('own.sock')",
        "absolute": "talk(os.path.abspath('abs.sock'))",
        "sequenced": "talk('seq.sock', kind=socket.SOCK_SEQPACKET)",
        "by_link": "os.symlink('linked.sock', 'link'); talk('linked.sock', 'link')",
        "from_thread": "t = threading.Thread(target=talk, args=('thread.sock',)); t.start(); t.join()",
    }
    refused = {"missing": "socket.socket(socket.AF_UNIX).connect('none')", "full": "fill()"}
    refused["file"] = "(open('plain', 'w').close(), socket.socket(socket.AF_UNIX).connect('plain'))"
    answer = confined({**cases, **refused}, before=before, supervised=True)
    assert_all_done(answer, cases)
    assert answer["missing"] == "FileNotFoundError"
    assert answer["full"] == "BlockingIOError"
    assert answer["file"] == "ConnectionRefusedError"


def test_old_calls_for_times_work_under_supervision(confined):
    if os.uname().machine != "x86_64":
        pytest.skip("this processor never had them")
    before = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *values):
    if libc.syscall(ctypes.c_long(number), *values) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
open('f', 'w').close()
"""
    cases = {
        "utime": "call(132, b'f', struct.pack('qq', 5, 6)); assert os.stat('f').st_mtime == 6",
        "utimes": "call(235, b'f', struct.pack('4q', 5, 0, 7, 500000)); assert os.stat('f').st_mtime == 7.5",
        "futimesat": "call(261, -100, b'f', struct.pack('4q', 5, 0, 9, 0)); assert os.stat('f').st_mtime == 9",
        "chmod": "call(90, b'f', 0o640); assert os.stat('f').st_mode & 0o777 == 0o640",
    }
    assert_all_done(confined(cases, before=before, supervised=True), cases)


def test_strange_requests_to_the_supervisor_are_refused_and_it_lives_on(confined):
    before = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *values):
    if libc.syscall(ctypes.c_long(number), *values) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
open('f', 'w').close()
chmod_at = 268 if os.uname().machine == 'x86_64' else 53
"""
    cases = {
        "bad_address": "call(chmod_at, -100, ctypes.c_void_p(1), 0o600)",
        "no_terminator": "call(chmod_at, -100, b'x' * 9000, 0o600)",
        "empty_path": "call(chmod_at, -100, b'', 0o600)",
        "bad_descriptor": "os.fchmod(999, 0o600)",
        "bad_folder": "os.chmod('f', 0o600, dir_fd=998)",
        "attribute": "os.setxattr('f', 'user.a', b'1')",
        "bad_times": "call(280, -100, b'f', ctypes.c_void_p(1), 0) if os.uname().machine == 'x86_64' else os.stat('-')",
        "missing": "os.chmod('nowhere', 0o600)",
    }
    answer = confined({**cases, "after": "os.chmod('f', 0o600)"}, before=before, supervised=True)
    assert {name: answer[name] for name in cases if not answer[name].endswith("Error")} == {}
    assert answer["after"] == "done"


@pytest.mark.races
def test_a_process_killed_while_it_asks_does_not_end_the_supervisor(confined):
    cases = {
        "killed": (
            "code = \"import os\\nopen('g', 'w').close()\\nwhile True: os.chmod('g', 0o600)\"\n"
            "for _ in range(5):\n"
            "    p = subprocess.Popen([sys.executable, '-c', code])\n"
            "    time.sleep(0.05); p.kill(); p.wait()"
        ),
        "after": "open('f', 'w').close(); os.chmod('f', 0o600)",
    }
    assert_all_done(confined(cases, before="import os, subprocess, sys, time", supervised=True), cases)


@pytest.mark.slow
def test_processes_work_by_fork_and_spawn(confined, inside):
    (inside / "poolwork.py").write_text(POOL_WORK)
    code = "with multiprocessing.get_context({!r}).Pool(2) as p: assert p.map(poolwork.work, range(5))"
    cases = {
        "fork": code.format("fork"),
        "spawn": code.format("spawn"),
        "forkserver": code.format("forkserver"),
        "manager": "with multiprocessing.Manager() as m: d = m.dict(); d['a'] = 1; assert d['a'] == 1",
        "executor": "with ProcessPoolExecutor(2) as p: assert list(p.map(poolwork.work, range(5)))",
        "queue": "q = multiprocessing.Queue(); q.put(1); assert q.get() == 1; q.close(); q.join_thread()",
    }
    before = (
        "import multiprocessing, sys\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "sys.path.insert(0, '.')\nimport poolwork\n"
    )
    answer = confined(cases, before=before, supervised=True, env={**os.environ, "TMPDIR": str(inside)})
    assert_all_done(answer, cases)


LIBRARIES = {
    "numpy": "a = numpy.random.rand(400, 400); (a @ a).sum(); numpy.linalg.svd(a); numpy.save('a.npy', a)",
    "pandas": "d = pandas.DataFrame({'a': [1, 2]}); d.to_csv('d.csv'); assert len(pandas.read_csv('d.csv')) == 2",
    "duckdb": (
        "duckdb.sql(\"copy (select * from range(100000)) to 'r.csv'\")\n"
        "assert duckdb.sql(\"select sum(range) from 'r.csv'\").fetchall()"
    ),
    "pyarrow": (
        "import pyarrow.parquet as q; q.write_table(pyarrow.table({'a': list(range(1000))}), 't.parquet')\n"
        "assert q.read_table('t.parquet').num_rows == 1000"
    ),
    "sklearn": (
        "from sklearn.linear_model import LogisticRegression as L; L().fit([[0], [1], [2], [3]], [0, 0, 1, 1])\n"
        "from sklearn.ensemble import RandomForestClassifier as F; F(n_estimators=4, n_jobs=2).fit([[0], [1]], [0, 1])"
    ),
    "matplotlib": (
        "matplotlib.use('agg'); import matplotlib.pyplot as p\np.plot([1, 2]); p.savefig('p.png'); p.savefig('p.pdf')"
    ),
    "polars": "polars.DataFrame({'a': [1]}).write_parquet('p.parquet')",
    "PIL": "from PIL import Image; Image.new('RGB', (4, 4)).save('i.png')",
}


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("early", [True, False], ids=["loaded-before", "loaded-inside"])
def test_libraries_work(confined, library, early):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    load = f"import {library}"
    cases = {"use": f"{load}\n{LIBRARIES[library]}"}
    answer = confined(cases, before=load if early else "", memory_bytes=4 << 30, env={**os.environ, "HOME": "/nowhere"})
    assert_all_done(answer, cases)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["node", "bash", "git", "gcc"])
def test_programs_work(confined, inside, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    scripts = {
        "node": ["node", "-e", "require('fs').writeFileSync('n.txt', String(6*7)); new Worker = 0"],
        "bash": ["bash", "-c", "set -e; x=$(mktemp -p .); echo 1 > $x; cat < $x; (sleep 0 &); wait; [[ 1 == 1 ]]"],
        "git": ["git", "-c", "init.defaultBranch=main", "init", "-q", "repo"],
        "gcc": ["sh", "-c", "echo 'int main(){return 0;}' > a.c && TMPDIR=. gcc a.c -o a && ./a"],
    }
    scripts["node"][2] = (
        "const fs = require('fs'); fs.writeFileSync('n.txt', '42');"
        "const {Worker} = require('worker_threads'); new Worker('1+1', {eval: true}).on('exit', () => process.exit(0));"
    )
    cases = {"run": "subprocess.run(argv, check=True)"}
    answer = confined(
        cases,
        before="import subprocess",
        names={"argv": scripts[program]},
        memory_bytes=4 << 30,
        supervised=True,
        env={**os.environ, "HOME": str(inside)},
    )
    assert_all_done(answer, cases)


def test_python_itself_is_readable_wherever_it_lies(confined):
    cases = {
        "import": "import wave, http.client, xml.dom.minidom, ensurepip",
        "executable": "open(sys.executable, 'rb').read(4)",
    }
    assert_all_done(confined(cases, before="import sys"), cases)
    assert sys.executable


def test_threads_and_children_are_its_own_when_the_numbers_have_wrapped_around(confined):
    """A number that is lower than its own need not be an older process: the filter asks the supervisor whose it is."""
    nested = "subprocess.Popen(['sh', '-c', 'sleep 9 & echo $!; wait'], stdout=-1)"
    cases = {
        "thread": "t = threading.Thread(target=pin_itself); t.start(); t.join(); assert pins",
        "child": "p = subprocess.Popen(['sleep', '9']); pin(p.pid); os.setpriority(0, p.pid, 5); p.kill()",
        "grandchild": f"p = {nested}; n = int(p.stdout.readline()); pin(n); os.kill(n, 9)",
    }
    refused = {
        "parent": "pin(os.getppid())",
        "first": "pin(1)",
        "slow_parent": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    }
    before = """
import os, subprocess, threading
pins = []
def pin(number):
    os.sched_setscheduler(number, os.SCHED_OTHER, os.sched_param(0))
    pins.append(number)
def pin_itself():
    pin(threading.get_native_id())
os.getpid = lambda: 1 << 22  # the filter is told this number: every other one is lower
"""
    answer = confined(cases | refused, before=before, supervised=True)
    assert_all_done(answer, cases)
    assert {answer[name] for name in refused} == {"PermissionError"}, answer
