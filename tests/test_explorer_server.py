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


def test_malformed_messages_end_their_own_connection_at_most(server):
    async def attack():
        victim = await PageClient.open(server.url, "linear")
        for frames in MALFORMED:
            attacker = await PageClient.open(server.url, "depth")
            with contextlib.suppress(WebSocketClosedError):  # refused while it is sent
                for frame in frames:
                    await attacker.socket.write_message(frame, binary=isinstance(frame, bytes))
            await asyncio.sleep(0.05)
            attacker.socket.close()
        await drawn_at(victim, 40)
        victim.socket.close()

    asyncio.run(attack())
    assert server.process.poll() is None


async def drawn_at(page, position):
    """Move the slider of richness, and wait for the curve that belongs to it."""
    curves = page.find(name="curves")
    await page.change(page.find(title="Richness (lazy to rich)"), "value", position)
    richness = float(f"{0.02 * 1000 ** (position / 120):.3g}")
    wanted = 1 + 100 / 256 / richness**2  # the first test loss, by its closed form
    while True:
        loss = page.models[curves]["data"]["test_loss"]
        if len(loss) and np.isclose(loss[0], wanted, rtol=1e-9):
            return
        await asyncio.wait_for(page.receive(), 60)


def test_values_that_no_widget_sends_do_not_stop_a_page(server):
    async def attack():
        page = await PageClient.open(server.url, "linear")
        for title, value in [
            ("Richness (lazy to rich)", "many"),
            ("Richness (lazy to rich)", 10**9),
            ("Richness (lazy to rich)", None),
            ("Mode", "<script>"),
            ("Width, number", "9" * 5000),
        ]:
            await page.change(page.find(title=title), "value", value)
            await asyncio.sleep(0.1)
        with contextlib.suppress(WebSocketClosedError):  # a refused change may end the connection
            page.socket.close()
        again = await PageClient.open(server.url, "linear")
        await drawn_at(again, 60)
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
