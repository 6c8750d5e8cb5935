"""A cluster on this machine runs what its own run sends, and nothing of other users, who reach its port as well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nbtools.workflow.driver.dask_cluster import _local_cluster

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.races, pytest.mark.slow]

# Speaks to a port as a scheduler's client does, without a certificate and with one of its own; prints what it heard.
STRANGER = """
import encodings.idna, os, resource, socket, ssl, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
if os.getuid() == 0:
    os.setuid(12345)
port = int(sys.argv[1])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for wrap in (lambda found: found, context.wrap_socket):
    heard = b""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain, wrap(plain) as found:
            found.settimeout(2)
            heard = found.recv(300)
    except OSError:
        pass
    print(len(heard))
print(os.getuid())
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with _local_cluster() as made:
        yield made


def test_another_user_is_not_even_greeted(cluster: Any) -> None:
    addresses = [cluster.scheduler_address, *(worker.worker_address for worker in cluster.workers.values())]
    ports = [address.rpartition(":")[2] for address in addresses]
    assert len(ports) == 3
    for port in ports:
        said = subprocess.run([sys.executable, "-c", STRANGER, port], capture_output=True, text=True, timeout=60)
        uid = 12345 if os.getuid() == 0 else os.getuid()
        assert said.stdout.split() == ["0", "0", str(uid)], said.stderr


def test_a_client_with_other_certificates_runs_nothing_and_its_own_does(cluster: Any) -> None:
    with distributed.Client(cluster, set_as_default=False) as own:
        assert own.submit(os.getpid).result(timeout=60) != os.getpid()
    with pytest.raises(OSError, match=r"(?i)ssl|tls|certificate|timed out"):
        distributed.Client(
            cluster.scheduler_address,
            security=distributed.Security.temporary(),
            timeout=3,
            set_as_default=False,
        )


def test_it_serves_no_pages(cluster: Any) -> None:
    import requests

    port = cluster.scheduler.http_server.port
    for path in ("status", "info/main/workers.html", "json/counts.json", "metrics"):
        assert requests.get(f"http://127.0.0.1:{port}/{path}", timeout=10).status_code == 404
