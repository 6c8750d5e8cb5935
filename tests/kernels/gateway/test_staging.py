"""What travels to a remote kernel and back, and addresses of servers: without any server."""

import base64
import re
import socket
from pathlib import Path

import pytest

from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded, NetworkError
from nbtools.ground import aio
from nbtools.kernels import KernelOptions, RunContext
from nbtools.kernels.gateway import staging
from nbtools.kernels.gateway.client import GatewayClient
from nbtools.kernels.gateway.kernel import GatewayBackend
from nbtools.kernels.gateway.staging import StagingPlan

OFF = KernelOptions(sandbox="off")


def open_backend(url, token=None):
    async def make():
        return GatewayBackend(url, token)

    return aio.run(make())


def test_paths_in_variables_are_moved_wherever_they_stand(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.csv").write_text(name)
    first, second = tmp_path / "a" / "same.csv", tmp_path / "b" / "same.csv"
    context = RunContext(
        cwd=tmp_path,
        files=(first, tmp_path / "b"),
        figure_path=tmp_path / "plot.svg",
        variables={
            "one": str(first),
            "two": [str(second), {"deep": str(tmp_path / "b")}],
            "out": str(tmp_path / "plot.svg"),
            "below": str(tmp_path / "new" / "x.txt"),
            "alike": f"{tmp_path}-other",
            "number": 3,
        },
    )
    packed = StagingPlan.for_run(context, "/r")
    assert packed.files == {first: "in/0/same.csv", second: "in/1/b/same.csv"}
    assert packed.context.cwd == Path("/r/work")
    assert packed.context.figure_path == Path("/r/out/plot.svg")
    assert packed.context.variables == {
        "one": "/r/in/0/same.csv",
        "two": ["/r/in/1/b/same.csv", {"deep": "/r/in/1/b"}],
        "out": "/r/out/plot.svg",
        "below": "/r/work/new/x.txt",
        "alike": f"{tmp_path}-other",
        "number": 3,
    }


def test_files_go_in_pieces(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"0123456789")
    calls = list(staging.upload_calls(file, "in/0/f", 4))
    pattern = re.compile(r"""put\("in/0/f", '(.*)', append=(True|False)\)""")
    texts = [pattern.fullmatch(call).groups() for call in calls]
    assert b"".join(base64.b64decode(text) for text, _ in texts) == b"0123456789"
    assert [append for _, append in texts] == ["False", "True", "True"]
    file.write_bytes(b"")
    assert len(list(staging.upload_calls(file, "in/0/f"))) == 1


def test_only_files_below_the_working_folder_come_back(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    context = RunContext(cwd=folder, figure_path=tmp_path / "plot.png")
    packed = StagingPlan.for_run(context, "/r")
    assert staging.local_path("work/a/b.txt", packed, context) == folder / "a" / "b.txt"
    assert staging.local_path("out/plot.png", packed, context) == tmp_path / "plot.png"
    for place in ("out/other.png", "in/0/x", "work", "work/..", "work/../x", "work/a/../../x", "/etc/x", "work/link/x"):
        assert staging.local_path(place, packed, context) is None
    assert staging.local_path("work/x", packed, RunContext()) is None


def test_missing_and_too_large_inputs_are_refused(tmp_path):
    with pytest.raises(FileMissing):
        StagingPlan.for_run(RunContext(files=(tmp_path / "absent",)), "/r")
    (tmp_path / "four").write_text("four")
    with pytest.raises(LimitExceeded):
        StagingPlan.for_run(RunContext(files=(tmp_path / "four",)), "/r", limit=3)


@pytest.mark.processes
def test_an_unreachable_gateway_is_told():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(NetworkError) as caught:
            aio.run(open_backend(url).open(OFF))
    assert "NBTOOLS_GATEWAY_URL" in caught.value.hint
    assert caught.value.retryable


@pytest.mark.parametrize("url", ["", "localhost:8888", "ftp://host/", "http://"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidArguments):
        open_backend(url)


def test_the_token_of_an_address_is_taken_out_of_it():
    server = GatewayClient("https://me:secret@host:8888/base/lab?token=abc")
    assert server.url == "https://me:secret@host:8888/base"
    assert server.shown_url == "https://host:8888/base"
    assert server.headers() == {"Authorization": "token abc"}
    assert GatewayClient("http://host/?token=abc", "given").headers() == {"Authorization": "token given"}
    assert GatewayClient("http://host").headers() == {}
