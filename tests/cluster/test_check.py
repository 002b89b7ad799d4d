"""`whet cluster check`: nodes that report, differ, are silent, or do not share the folder."""

import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from small import whet

from whet.cluster import check
from whet.cluster.check import NodeReport, describe_node, find_faults, gather_reports, report_to

NODE = NodeReport(
    name="n1",
    python="3.12.1",
    torch="2.11",
    whet="0.1",
    driver="570.1",
    gpus="8 x H100",
    interfaces="eth0",
    faults=[],
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "token").write_text("secret")
    return tmp_path / "shared"


def test_this_machine_alone_is_checked_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = whet("cluster", "check")
    assert "1 nodes reported; faults: 0" in said.err
    assert socket.gethostname()[:8] in said.out
    assert (said.code, list(tmp_path.iterdir())) == (0, [])


def test_nodes_that_report_are_heard_with_the_offset_of_their_clocks(shared: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threads = [
            threading.Thread(
                target=report_to, args=(address, shared), kwargs={"name": name, "token": "secret"}
            )
            for name in ("n1", "n2")
        ]
        for thread in threads:
            thread.start()
        nodes = gather_reports(server, [], 2)
        for thread in threads:
            thread.join()
    assert {node.name for node in nodes} == {"n1", "n2"}
    assert [node for node in nodes if abs(node.clock) > 0.5 or node.faults] == []


def test_a_clock_that_is_ahead_is_measured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = socket.create_connection(server.getsockname())
        with link, link.makefile("rw") as stream:

            def answer() -> None:
                print(json.dumps(asdict(NODE)), file=stream, flush=True)
                while stream.readline():
                    print(time.time() + 100, file=stream, flush=True)

            thread = threading.Thread(target=answer)
            thread.start()
            (node,) = gather_reports(server, [], 1)
            thread.join()
    assert node.clock == pytest.approx(100, abs=0.5)
    assert find_faults([node], []) == [f"n1: its clock is {node.clock:+.1f} s off"]


def test_a_stranger_at_the_port_is_not_taken_for_a_node(shared: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            node = threading.Thread(
                target=report_to,
                args=(f"127.0.0.1:{address[1]}", shared),
                kwargs={"name": "n1", "token": None},
            )
            node.start()
            assert [node.name for node in gather_reports(server, [], 1)] == ["n1"]
            node.join()


def test_nobody_is_waited_for_once_every_report_has_failed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    began = time.monotonic()
    with child, socket.create_server(("127.0.0.1", 0)) as server:
        assert gather_reports(server, [child], 1) == []
    assert time.monotonic() - began < check.WAIT_SECONDS / 2


def test_another_folder_under_the_same_name_is_not_shared(shared: Path) -> None:
    assert describe_node("n", shared, "secret").faults == []
    (fault,) = describe_node("n", shared, "other").faults
    assert "is not the folder of the first node" in fault


def test_what_differs_from_the_others_is_named() -> None:
    nodes = [
        NODE,
        replace(NODE, name="n2", torch="2.13"),
        replace(NODE, name="n3", gpus="7 x H100", faults=["somebody uses 40 GiB of GPU 3"]),
        replace(NODE, name="n4"),
    ]
    assert find_faults(nodes, ["n1", "n2", "n3", "n4", "n5"]) == [
        "n5 did not report within 60 s: it is down, cannot start whet, or cannot reach the first node",
        "n2 has torch 2.13, others 2.11",
        "n3 has gpus 7 x H100, others 8 x H100",
        "n3: somebody uses 40 GiB of GPU 3",
    ]


@pytest.mark.parametrize("nodes", ["-oProxyCommand=touch owned", "a,,b"])
def test_a_name_that_ssh_would_take_for_an_option_is_refused(
    nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = whet("cluster", "check", f"--nodes={nodes}")
    assert (said.code, "is not a machine name" in said.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
