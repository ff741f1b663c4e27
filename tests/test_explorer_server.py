"""The safety of the explorer's server: addresses, origins, malformed messages, Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

import numpy as np
import psutil
import pytest
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClosedError

from tests.explorer_client import PageClient, running_explorer


@pytest.fixture(scope="module")
def server():
    with running_explorer() as running:
        yield running


def test_the_server_listens_on_this_machine_only(server):
    listening = [c for c in psutil.Process(server.process.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {(c.laddr.ip, c.laddr.port) for c in listening} == {("127.0.0.1", server.port)}


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null"])
def test_a_page_of_another_origin_gets_no_connection(server, origin):
    with pytest.raises(HTTPClientError) as error:
        asyncio.run(PageClient.open(server.url, "linear", origin))
    assert error.value.code == 403


MALFORMED = [
    [b"\xff\xfe\x00garbage"],
    ["not json"],
    ["{}", "{}", "{}"],
    ['{"msgtype": "PATCH-DOC", "msgid": "1"}', "{}", "[]"],
    ['{"msgtype": "PATCH-DOC", "msgid": "1"}', "{}", '{"events": [{"kind": "ModelChanged", "model": {"id": "none"}}]}'],
    ['{"msgtype": "PATCH-DOC", "msgid": "1"}', "{}", '{"events": [{"kind": "' + "x" * 1000 + '"}]}'],
    ['{"msgtype": "PATCH-DOC", "msgid": "1", "num_buffers": 1000000000}', "{}", "{}"],
    ["[" * 100_000],
    ["x" * (5 * 2**20)],
]


@pytest.mark.parametrize("frames", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_messages_end_their_own_connection_at_most(frames, server):
    async def attack():
        victim = await PageClient.open(server.url, "linear")
        attacker = await PageClient.open(server.url, "depth")
        with contextlib.suppress(WebSocketClosedError):  # refused while it is sent
            for frame in frames:
                await attacker.socket.write_message(frame, binary=isinstance(frame, bytes))
        await asyncio.sleep(0.2)
        attacker.socket.close()
        slider, curves = victim.find(title="Richness (lazy to rich)"), victim.find(name="curves")
        await victim.change(slider, "value", 40)
        wanted = 1 + 100 / 256 / 0.2**2  # first test loss at this richness: 0.02 times 1000^(40/120)
        while not (
            len(victim.models[curves]["data"]["test_loss"])
            and np.isclose(victim.models[curves]["data"]["test_loss"][0], wanted)
        ):
            await asyncio.wait_for(victim.receive(), 60)
        victim.socket.close()

    asyncio.run(attack())


@pytest.mark.parametrize(
    ("title", "name", "value"),
    [
        ("Richness (lazy to rich)", "value", "many"),
        ("Richness (lazy to rich)", "value", 10**9),
        ("Richness (lazy to rich)", "value", None),
        ("Mode", "value", "<script>"),
        ("Width, number", "value", "9" * 5000),
    ],
)
def test_values_that_no_widget_sends_do_not_stop_a_page(title, name, value, server):
    async def attack():
        page = await PageClient.open(server.url, "linear")
        await page.change(page.find(title=title), name, value)
        await asyncio.sleep(0.3)
        page.socket.close()
        again = await PageClient.open(server.url, "linear")
        again.socket.close()

    asyncio.run(attack())
    assert server.process.poll() is None


def test_ctrl_c_ends_the_server_its_workers_and_its_files():
    with running_explorer() as server:
        process = psutil.Process(server.process.pid)
        asyncio.run(PageClient.open(server.url, "linear"))
        workers = process.children(recursive=True)
        assert workers
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 0
        end = time.monotonic() + 30
        while any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers):
            assert time.monotonic() < end, workers
            time.sleep(0.1)
    assert server.said == []
