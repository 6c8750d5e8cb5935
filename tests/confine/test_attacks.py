"""What a strict process must not be able to do, tried in earnest."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from nbtools.confine import capabilities, landlock, seccomp

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("strict_host")]

REFUSED = {"PermissionError", "OSError", "ConnectionRefusedError", "gaierror"}


def assert_all_refused(answer, cases):
    assert {name: answer[name] for name in cases if answer[name] not in REFUSED} == {}


def test_files_outside_can_be_neither_read_nor_changed(confined, outside, tmp_path):
    names = {"outside": str(outside), "file": str(outside / "secret.txt")}
    cases = {
        "read": "open(file).read()",
        "read_shadow": "open('/etc/shadow').read()",
        "read_through_link": "os.symlink(file, 'link'); open('link').read()",
        "list_home": "os.listdir(os.path.expanduser('~'))",
        "list_outside": "os.listdir(outside)",
        "write": "open(file, 'w')",
        "append": "open(file, 'a')",
        "create": "open(outside + '/new', 'w')",
        "truncate": "os.truncate(file, 0)",
        "truncate_by_open": "os.open(file, os.O_RDONLY | os.O_TRUNC)",
        "delete": "os.unlink(file)",
        "delete_folder": "os.rmdir(outside)",
        "rename_out": "open('mine', 'w').close(); os.rename('mine', outside + '/mine')",
        "rename_in": "os.rename(file, 'taken')",
        "link_in": "os.link(file, 'hard')",
        "link_out": "os.link('mine', outside + '/hard')",
        "symlink_out": "os.symlink('/', outside + '/root')",
        "mkdir": "os.mkdir(outside + '/folder')",
        "fifo": "os.mkfifo(outside + '/fifo')",
        "device": "os.mknod('null', 0o20666, os.makedev(1, 3))",
        "execute_copy": "import subprocess; subprocess.run([outside + '/program'])",
        "tmp": "open('/tmp/nbtools-attack', 'w')",
        "proc_write": "open('/proc/sys/kernel/hostname', 'w')",
    }
    (outside / "program").write_text("#!/bin/sh\ntrue\n")
    (outside / "program").chmod(0o755)
    answer = confined(cases, names=names, before="import os")
    assert_all_refused(answer, cases)
    assert (outside / "secret.txt").read_text() == "secret"
    assert sorted(path.name for path in outside.iterdir()) == ["program", "secret.txt"]


def test_a_working_folder_that_became_a_link_is_refused(confined, inside, outside):
    cases = {"write": "open('new.txt', 'w')"}
    there = confined(cases, folder=str(inside))
    assert (there["write"], there["applied"][0]) == ("done", "strict")
    (inside / "new.txt").unlink()
    inside.rmdir()
    inside.symlink_to(outside)
    swapped = confined(cases, folder=str(inside), required=False)
    assert "leads elsewhere" in swapped["applied"][1][0]
    with pytest.raises(AssertionError, match=r"doctor. says about this host"):
        confined(cases, folder=str(inside))


def test_keys_in_the_home_folder_cannot_be_read(confined, tmp_path):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("key")
    cases = {
        "key": "open(os.path.expanduser('~/.ssh/id_rsa')).read()",
        "by_subprocess": "subprocess.run(['cat', os.path.expanduser('~/.ssh/id_rsa')], check=True)",
        "by_other_name": "open('/proc/self/root' + os.path.expanduser('~/.ssh/id_rsa')).read()",
    }
    answer = confined(cases, before="import os, subprocess", env={**os.environ, "HOME": str(home)})
    assert (answer["key"], answer["by_other_name"]) == ("PermissionError", "PermissionError")
    assert answer["by_subprocess"] == "CalledProcessError"


def test_what_is_written_is_no_program_where_programs_are_listed(confined, inside):
    program = os.path.realpath(shutil.which("true"))
    shutil.copy(program, inside / "own")
    cases = {"own": "subprocess.run(['./own'], check=True)", "listed": f"subprocess.run([{program!r}], check=True)"}
    answer = confined(cases, before="import subprocess", programs=["/lib", "/lib64", "/usr/lib", program])
    assert (answer["own"], answer["listed"]) == ("PermissionError", "done")


@pytest.mark.parametrize("supervised", [False, True], ids=["alone", "supervised"])
def test_metadata_outside_cannot_be_changed(confined, outside, supervised):
    file = outside / "secret.txt"
    file.chmod(0o640)
    before = file.stat()
    cases = {
        "chmod": "os.chmod(file, 0o777)",
        "chmod_link": "os.symlink(file, 'link'); os.chmod('link', 0o777)",
        "chmod_relative": "os.chmod('../outside/secret.txt', 0o777)",
        "chmod_through_proc": "os.chmod('/proc/self/cwd/../outside/secret.txt', 0o777)",
        "chmod_system": "os.chmod('/usr/bin/env', 0o777)",
        "fchmod_of_readable": "os.fchmod(os.open('/usr/bin/env', os.O_RDONLY), 0o777)",
        "chown": "os.chown(file, 12345, 12345)",
        "utime": "os.utime(file, (1, 1))",
        "attribute": "os.setxattr(file, 'user.x', b'1')",
        "attribute_removed": "os.removexattr(file, 'user.x')",
    }
    answer = confined(cases, names={"file": str(file)}, before="import os", supervised=supervised)
    assert_all_refused(answer, cases)
    after = file.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (before.st_mode, before.st_mtime_ns, before.st_uid)


@pytest.mark.races
def test_other_processes_stay_closed_and_alive(confined):
    victim = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "API_KEY": "hidden"},
        start_new_session=True,
    )
    names = {"victim": victim.pid, "owner": os.getpid(), **{k: seccomp.NUMBERS[os.uname().machine][k] for k in NUMBERS}}
    cases = {
        "environment": "open(f'/proc/{victim}/environ').read()",
        "environment_of_owner": "open(f'/proc/{owner}/environ').read()",
        "environment_of_parent": "open(f'/proc/{os.getppid()}/environ').read()",
        "memory": "open(f'/proc/{victim}/mem', 'rb').read(1)",
        "maps": "open(f'/proc/{victim}/maps').read()",
        "descriptors": "os.readlink(f'/proc/{victim}/fd/0')",
        "working_folder": "os.listdir(f'/proc/{victim}/cwd/')",
        "root_folder": "os.listdir(f'/proc/{victim}/root/')",
        "kill_owner": "os.kill(owner, signal.SIGTERM)",
        "probe_owner": "os.kill(owner, 0)",
        "kill_victim": "os.kill(victim, signal.SIGKILL)",
        "kill_group": "os.killpg(os.getpgid(victim), signal.SIGKILL)",
        "kill_by_descriptor": "signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL)",
        "ptrace": "call(ptrace, 16, victim, 0, 0)",
        "read_memory": "call(process_vm_readv, victim, 0, 0, 0, 0, 0)",
        "write_memory": "call(process_vm_writev, victim, 0, 0, 0, 0, 0)",
        "take_descriptor": "call(pidfd_getfd, os.pidfd_open(victim), 0, 0)",
        "limit_owner": "resource.prlimit(owner, resource.RLIMIT_CPU, (1, 1))",
        "limit_victim": "resource.prlimit(victim, resource.RLIMIT_CPU, (1, 1))",
        "slow_owner": "os.setpriority(os.PRIO_PROCESS, owner, 19)",
        "slow_everybody": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
        "pin_owner": "os.sched_setaffinity(owner, {0})",
        "sacrifice_owner": "open(f'/proc/{owner}/oom_score_adj', 'w').write('1000')",
    }
    try:
        answer = confined(cases, names=names, before=CALL + "import os, signal, resource")
        assert_all_refused(answer, cases)
        assert victim.poll() is None
    finally:
        victim.communicate(b"\n")


NUMBERS = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "unshare", "mount", "bpf", "keyctl"),
    *("io_uring_setup", "setns", "perf_event_open", "userfaultfd", "clone", "clone3", "shmget", "chroot"),
)
CALL = """
import ctypes, os
def call(number, *values):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, values)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


def test_doors_to_the_kernel_are_closed(confined):
    names = {k: seccomp.NUMBERS[os.uname().machine][k] for k in NUMBERS}
    cases = {
        "user_namespace": "call(unshare, 0x10000000)",
        "mount_namespace": "call(unshare, 0x20000)",
        "namespace_by_clone": "call(clone, 0x10000000 | 17, 0, 0, 0, 0)",
        "namespace_by_clone3": "call(clone3, 0, 0)",
        "enter_namespace": "call(setns, 0, 0)",
        "mount": "call(mount, 0, 0, 0, 0, 0)",
        "chroot": "os.chroot('.')",
        "bpf": "call(bpf, 0, 0, 0)",
        "keyring": "call(keyctl, 0, -3, 0)",
        "io_uring": "call(io_uring_setup, 1, 0)",
        "perf": "call(perf_event_open, 0, 0, -1, -1, 0)",
        "userfaultfd": "call(userfaultfd, 0)",
        "shared_segment": "call(shmget, 1, 4096, 0o1600)",
        "type_into_terminal": "fcntl.ioctl(0, 0x5412, b'x')",
        "become_somebody": "os.setuid(1 if os.getuid() == 0 else 0)",
    }
    assert_all_refused(confined(cases, names=names, before=CALL + "import os, fcntl"), cases)


def test_limits_cannot_be_raised(confined):
    cases = {
        "memory": "resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 40))",
        "file_size": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))",
        "by_prlimit": "resource.prlimit(0, resource.RLIMIT_DATA, (1 << 40, 1 << 40))",
        "core": "resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))",
        "allocate": "x = bytearray(1 << 30)",
        "big_file": "open('big', 'wb').truncate(1 << 22)",
    }
    answer = confined(cases, before="import resource", memory_bytes=1 << 29, file_bytes=1 << 20, open_files=256)
    refusals = {"ValueError", "PermissionError", "MemoryError", "OSError"}
    assert {name: answer[name] for name in cases if answer[name] not in refusals} == {}


@pytest.mark.parametrize("level", ["limits", "strict"])
def test_nobody_regains_what_was_given_up(confined, level):
    cases = {
        "raise": "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
        "in_child": (
            "import subprocess\n"
            "code = 'import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))'\n"
            "subprocess.run([sys.executable, '-c', code], check=True, stderr=subprocess.DEVNULL)"
        ),
    }
    answer = confined(cases, before="import resource, sys", level=level, open_files=256)
    assert answer["raise"] in {"ValueError", "PermissionError"}
    assert answer["in_child"] == "CalledProcessError"


@pytest.mark.parametrize("supervised", [False, True], ids=["alone", "supervised"])
def test_network_is_closed(confined, supervised):
    path = f"/tmp/nbtools-{os.getpid()}.sock"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(("127.0.0.1", 0))
        local.bind(path)
        local.listen()
        names = {"port": tcp.getsockname()[1], "udp": udp.getsockname()[1], "path": path}
        cases = {
            "tcp": "socket.create_connection(('127.0.0.1', port))",
            "tcp6": "socket.socket(socket.AF_INET6)",
            "udp": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', udp))",
            "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
            "packet": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
            "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "vsock": "socket.socket(40, socket.SOCK_STREAM)",
            "crypto": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
            "dns": "socket.getaddrinfo('example.org', 80)",
            "http": "urllib.request.urlopen(f'http://127.0.0.1:{port}', timeout=2)",
            "unix": "socket.socket(socket.AF_UNIX).connect(path)",
            "unix_by_link": "(os.symlink(path, 'link'), socket.socket(socket.AF_UNIX).connect('link'))",
            "unix_relative": "socket.socket(socket.AF_UNIX).connect('../../../../../../../../../..' + path)",
            "unix_abstract": "socket.socket(socket.AF_UNIX).connect('\\0/tmp/.X11-unix/X0')",
            "unix_datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '/dev/log')",
            "unix_datagram_pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
            "unix_raw": "socket.socket(socket.AF_UNIX, socket.SOCK_RAW)",
            "unix_raw_pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)",
            "unix_unknown": "socket.socket(socket.AF_UNIX, 4)",
        }
        try:
            answer = confined(cases, names=names, before="import os, socket, urllib.request", supervised=supervised)
        finally:
            Path(path).unlink()
    assert {n: answer[n] for n in cases if answer[n] not in {*REFUSED, "URLError"}} == {}


def test_the_network_switch_opens_the_internet_but_no_local_service(confined):
    path = f"/tmp/nbtools-{os.getpid()}-n.sock"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        local.bind(path)
        local.listen()
        cases = {
            "tcp": "socket.create_connection(('127.0.0.1', port)).close()",
            "unix": "socket.socket(socket.AF_UNIX).connect(path)",
            "packet": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        }
        try:
            answer = confined(
                cases, names={"port": tcp.getsockname()[1], "path": path}, before="import socket", network=True
            )
        finally:
            Path(path).unlink()
    assert [answer[name] for name in cases] == ["done", "PermissionError", "PermissionError"]


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5, 6])
def test_older_kernels_are_made_up_for(confined, outside, abi):
    """Pretends that the kernel has an older Landlock: what that one lacks is refused by the filter."""
    if abi > landlock.available_abi():
        pytest.skip("this kernel's Landlock is older still")
    cases = {
        "truncate": "os.truncate(file, 0)",
        "truncate_by_open": "os.open(file, os.O_RDONLY | os.O_TRUNC)",
        "kill_owner": "os.kill(owner, 0)",
        "kill_parent": "os.kill(os.getppid(), 0)",
        "kill_group": "os.killpg(os.getpgid(os.getppid()), 0)",
        "write": "open(file, 'w')",
        "rename": "os.rename(file, 'taken')",
    }
    pretend = f"import os\nfrom nbtools.confine import landlock\nlandlock.available_abi = lambda: {abi}\n"
    names = {"file": str(outside / "secret.txt"), "owner": os.getpid()}
    works = {"own_child": "pid = os.fork()\nif not pid: os._exit(0)\nos.kill(pid, 0); os.waitpid(pid, 0)"}
    answer = confined(cases | works, names=names, before=pretend)
    assert_all_refused(answer, cases)
    assert answer["own_child"] == "done"
    assert (outside / "secret.txt").read_text() == "secret"


def test_keys_of_other_terminals_cannot_be_read(confined):
    master, slave = os.openpty()
    try:
        os.write(master, b"password\n")
        cases = {
            "other": "os.open(name, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)",
            "other_to_write": "os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)",
            "list": "os.listdir('/dev/pts')",
            "own": "os.openpty()",
            "controlling": "open('/dev/tty')",
        }
        assert_all_refused(confined(cases, names={"name": os.ttyname(slave)}, before="import os"), cases)
    finally:
        os.close(master)
        os.close(slave)


def test_controls_of_files_change_no_metadata(confined, outside):
    cases = {
        name: f"fcntl.ioctl(os.open(file, os.O_RDONLY), {number:#x}, bytearray(64))"
        for name, number in {
            "flags": 0x40086602,
            "flags_of_32_bits": 0x40046602,
            "extended": 0x401C5820,
            "version": 0x40087602,
            "encryption": 0x800C6613,
            "verity": 0x40806685,
            "fat": 0x40047211,
            "label": 0x41009432,
            "subvolume": 0x5000940E,
        }.items()
    }
    # The filter's answer, and no file system's: that one does not know most of them.
    code = "\ntry:\n    {}\nexcept OSError as exc:\n    if exc.errno != errno.EPERM: raise ValueError(exc)\n    raise"
    cases = {name: code.format(case) for name, case in cases.items()}
    file = outside / "secret.txt"
    answer = confined(cases, names={"file": str(file)}, before="import errno, fcntl, os", read=[str(file)])
    assert {name: answer[name] for name in cases} == dict.fromkeys(cases, "PermissionError")
    reads = {"read": "fcntl.ioctl(os.open(file, os.O_RDONLY), 0x5421, bytearray(8))"}
    assert confined(reads, names={"file": str(file)}, before="import fcntl, os", read=[str(file)])["read"] == "done"


def test_credentials_stay_closed_where_the_home_is_allowed(confined, inside, tmp_path):
    home = inside / "home"
    for name in (".ssh/id_rsa", ".aws/credentials", ".config/gcloud/token", ".config/other/plain", "work/data.csv"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("text")
    (home / "notes.txt").write_text("text")
    (home / ".netrc").write_text("text")
    refused = {
        "key": "open(home + '/.ssh/id_rsa').read()",
        "by_link": "os.symlink(home + '/.ssh/id_rsa', home + '/work/l'); open(home + '/work/l').read()",
        "hard_link": "os.link(home + '/.ssh/id_rsa', home + '/work/h')",
        "moved": "os.rename(home + '/.ssh', home + '/work/ssh')",
        "aws": "open(home + '/.aws/credentials').read()",
        "deep": "open(home + '/.config/gcloud/token').read()",
        "file": "open(home + '/.netrc').read()",
        "written": "open(home + '/.ssh/authorized_keys', 'w')",
        "removed": "os.unlink(home + '/.ssh/id_rsa')",
    }
    done = {
        "listed": "assert '.ssh' in os.listdir(home)",
        "beside": "open(home + '/notes.txt').read()",
        "below": "open(home + '/work/data.csv').read()",
        "other": "open(home + '/.config/other/plain').read()",
    }
    env = {**os.environ, "HOME": str(home)}
    for given in ({"read": [str(home)], "write": [str(home / "work")]}, {"write": [str(home)]}):
        names, before = {"home": str(home)}, "import os"
        answer = confined({**done, **refused}, names=names, before=before, env=env, **given)
        assert_all_refused(answer, refused)
        assert {name: answer[name] for name in done} == dict.fromkeys(done, "done")
        (home / "work" / "l").unlink()
    assert (home / ".ssh" / "id_rsa").read_text() == "text"


def test_shared_memory_of_other_programs_is_out_of_reach(confined):
    if not capabilities().shared_memory:
        pytest.skip("no process can have a /dev/shm of its own here: " + " ".join(capabilities().remedies))
    with contextlib.closing(shared_memory.SharedMemory(create=True, size=100)) as theirs:
        theirs.buf[:4] = b"here"
        try:
            cases = {
                "empty": "assert os.listdir('/dev/shm') == []",
                "own": "open('/dev/shm/mine', 'w').write('x')",
                "semaphore": "multiprocessing.get_context('fork').Lock()",
                "mounted_anew": "assert os.stat('/dev/shm').st_dev != theirs",
            }
            before, names = "import multiprocessing, os", {"theirs": os.stat("/dev/shm").st_dev}  # noqa: PTH116
            answer = confined(cases, names=names, before=before, own_shared_memory=True)
            assert {name: answer[name] for name in cases} == dict.fromkeys(cases, "done")
            assert bytes(theirs.buf[:4]) == b"here"
            assert not Path("/dev/shm/mine").exists()
        finally:
            theirs.unlink()


def test_other_processes_are_not_to_be_seen(confined):
    if not capabilities().own_processes:
        pytest.skip("no process can have a /proc of its own here: " + " ".join(capabilities().remedies))
    secret = {**os.environ, "TOKEN": "hidden"}
    victim = subprocess.Popen([sys.executable, "-c", "input()", "--token=hidden"], stdin=subprocess.PIPE, env=secret)
    try:
        cases = {
            "arguments": "open(f'/proc/{victim}/cmdline').read()",
            "environment": "open(f'/proc/{victim}/environ').read()",
            "name": "open(f'/proc/{victim}/comm').read()",
            "thread": "open(f'/proc/self/task/{victim}/cmdline').read()",
            "owner": "open(f'/proc/{os.getppid()}/cmdline').read()",
            "mounted": "open(f'/proc/self/root/proc/{victim}/cmdline').read()",
            "first": "os.stat('/proc/1')",
        }
        work = {
            "listed": "assert {n for n in os.listdir('/proc') if n.isdigit()} == {str(os.getpid())}",
            "self": "assert b'-c' in open('/proc/self/cmdline', 'rb').read()",
            "child": "p = subprocess.Popen(['sleep', '9']); assert os.path.exists(f'/proc/{p.pid}/stat'); p.kill()",
            "machine": "assert open('/proc/meminfo').read() and open('/proc/cpuinfo').read()",
        }
        names = {"victim": victim.pid}
        answer = confined(cases | work, names=names, before="import os, subprocess", own_shared_memory=True)
        assert {name: answer[name] for name in cases} == dict.fromkeys(cases, "FileNotFoundError")
        assert {name: answer[name] for name in work} == dict.fromkeys(work, "done")
    finally:
        victim.communicate(b"\n")
