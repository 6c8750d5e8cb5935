import json
import os
import pickle
import sys

import pytest

from nbtools.confine import Confinement, HostLimits, apply, capabilities, host, places
from nbtools.errors import SandboxUnavailable

NONE = HostLimits(platform="x", level="limits", limits=True, missing=("Landlock: no",), remedies=("Get Linux.",))


@pytest.mark.processes
def test_the_host_is_measured_and_the_result_is_plain_data():
    found = capabilities()
    assert found is capabilities()
    assert json.loads(json.dumps(found.to_dict()))["level"] == found.level
    if found.level == "strict":
        assert found.missing == ()
        assert set(found.refused) == {*host._STRICT}
    else:
        assert found.missing


def test_a_level_is_had_refused_or_lowered():
    assert NONE.can("off")
    assert NONE.can("limits")
    assert not NONE.can("strict")
    assert NONE.settle("limits", explicit=True) == "limits"
    assert NONE.settle("strict", explicit=False) == "limits"
    with pytest.raises(SandboxUnavailable, match="Landlock: no") as caught:
        NONE.settle("strict", explicit=True)
    assert caught.value.hint == "Get Linux."
    assert caught.value.data["available"] == "limits"


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        ({"landlock_abi": 0, "seccomp": True, "failed": ["Landlock (files): no"]}, "limits", "5.13"),
        ({"landlock_abi": 3, "seccomp": True, "failed": []}, "strict", "6.12"),
        ({"landlock_abi": 7, "seccomp": False, "failed": ["seccomp: no"]}, "limits", "CONFIG_SECCOMP_FILTER"),
        ({"landlock_abi": 7, "seccomp": True, "failed": [], "limits": False}, "off", ""),
        ({"landlock_abi": 7, "seccomp": True, "failed": [], "own_processes": False}, "strict", "arguments of other"),
        ({"landlock_abi": 7, "seccomp": True, "failed": [], "refused": {"signals": False}}, "limits", ""),
    ],
)
def test_measurements_are_judged(found, level, words, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    refused = dict.fromkeys(host._STRICT, True)
    facts = {
        "supervision": True,
        "limits": True,
        "shared_memory": True,
        "own_processes": True,
        **found,
        "refused": refused | found.get("refused", {}),
    }
    judged = host._judge("Linux", facts)
    assert judged.level == level
    assert words in " ".join(judged.remedies)
    assert bool(judged.missing) == (level == "limits")


@pytest.mark.processes
def test_a_probe_that_cannot_run_means_nothing_is_promised(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = capabilities.__wrapped__()
    assert found.level == "off"
    assert "/nowhere/python" in " ".join(found.remedies)


def test_other_systems_say_what_helps(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "gateway" in host._remedies({"landlock_abi": 0, "seccomp": False})[0]


def test_off_changes_nothing():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert apply(Confinement(level="off")).level == "off"
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_confinement_travels():
    given = Confinement(level="strict", read=("/a",), write=("/b",), memory_bytes=5, network=True)
    assert Confinement.from_dict(json.loads(json.dumps(given.to_dict()))) == given
    assert pickle.loads(pickle.dumps(given)) == given


@pytest.mark.processes
def test_missing_parts_are_errors_or_are_named(confined):
    without = "from nbtools.confine import landlock\nlandlock.available_abi = lambda: 0\n"
    answer = confined({"x": "1"}, before=without, required=False)
    assert answer["applied"][0] == "limits"
    assert answer["applied"][1][0].startswith("Landlock")
    answer = confined(
        {"ask": "apply(strict)"},
        before=f"{without}from nbtools.confine import Confinement, apply\nstrict = Confinement(level='strict')\n",
        level="off",
    )
    assert answer["ask"] == "SandboxUnavailable"


@pytest.mark.processes
@pytest.mark.usefixtures("strict_host")
def test_limits_bite(confined):
    cases = {
        "memory": "bytearray(1 << 28)",
        "file": "open('big', 'wb').write(bytes(1 << 20))",
        "descriptors": "x = [open('/dev/null') for _ in range(100)]",
    }
    before = "import resource"
    answer = confined(cases, before=before, level="limits", memory_bytes=1 << 27, file_bytes=1 << 16, open_files=64)
    assert [answer[name] for name in cases] == ["MemoryError", "OSError", "OSError"]


@pytest.mark.processes
def test_processor_time_runs_out(confined):
    spin = "assert subprocess.run([sys.executable, '-c', 'while True: pass']).returncode == -24"
    assert confined({"spin": spin}, before="import subprocess, sys", level="limits", cpu_s=1)["spin"] == "done"


def test_a_folder_that_holds_the_home_is_no_place_of_python(monkeypatch, tmp_path):
    home = tmp_path / "users" / "me"
    (home / "lib").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "path", [str(home), str(tmp_path / "users"), "/", str(home / "lib"), ""])
    found = places.python_places()
    assert str(home / "lib") in found
    assert not {str(home), str(tmp_path / "users"), "/"} & set(found)


def test_what_a_host_can_do_is_told_in_a_line():
    assert str(NONE) == "up to limits on x (resource limits); missing: Landlock: no"
    full = HostLimits(platform="x", level="strict", landlock_abi=7, seccomp=True, supervision=True, limits=True)
    assert str(full) == "up to strict on x (Landlock 7, seccomp, supervision, resource limits); nothing is missing"
