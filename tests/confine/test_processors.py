from __future__ import annotations

import os
from pathlib import Path

import pytest

from nbtools.confine.processors import count_processors


def _machine(root: Path, groups: str, **quotas: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for place, text in quotas.items():
        file = root / "sys/fs/cgroup" / place.replace("__", "/")
        file = file.with_name(file.name.replace("cpu_", "cpu."))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "quotas"),
    [
        ("0::/\n", {"cpu_max": "50000 100000"}),
        ("0::/pod/inner\n", {"pod__cpu_max": "100000 100000", "pod__inner__cpu_max": "max 100000"}),
        ("4:memory:/pod\n3:cpu,cpuacct:/pod\n", {"cpu__cpu_cfs_quota_us": "90000", "cpu__cpu_cfs_period_us": "100000"}),
    ],
    ids=["of the container", "of a group above", "version 1"],
)
def test_a_quota_counts_where_it_is_less_than_the_processors(
    tmp_path: Path, groups: str, quotas: dict[str, str]
) -> None:
    assert count_processors(_machine(tmp_path, groups, **quotas)) == 1


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert count_processors(tmp_path / "nothing") == allowed
    unlimited = {"cpu_max": "max 100000", "cpu__cpu_cfs_quota_us": "-1", "cpu__cpu_cfs_period_us": "100000"}
    assert count_processors(_machine(tmp_path, "0::/\n1:cpu:/\n", **unlimited)) == allowed
