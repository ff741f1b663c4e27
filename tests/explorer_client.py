"""A server of the explorer in a process of its own, and a bare client of its websocket, for tests and the load test."""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.util.token import generate_jwt_token, generate_session_id
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

SOURCE = Path(__file__).parents[1] / "src"


class Server:
    """A running explorer: `url` without a slash at its end, the `process`, and what it `said` on standard error."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.said: list[str] = []

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def running_explorer(seconds: float = 90.0):
    """``lazyrich explore`` on a free port, ended with Ctrl-C's signal."""
    command = [sys.executable, "-m", "lazyrich.cli", "explore", "--port", "0", "--no-browser"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )
    assert process.stdout is not None and process.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()
    try:
        first = lines.get(timeout=seconds)
    except queue.Empty:
        first = ""
    if "http://" not in first:
        process.kill()
        raise RuntimeError(f"the explorer did not start: {first!r} {process.stderr.read()}")
    server = Server(process, first.split()[1].rpartition("/")[0])
    listener = threading.Thread(target=lambda: server.said.extend(process.stderr), daemon=True)
    listener.start()
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


class PageClient:
    """One page over its websocket, as a browser has it: the document's models, changes sent and changes received.

    Attributes
    ----------
    models : dict
        Attributes of every model by its id.
    """

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self.models: dict[str, dict[str, Any]] = {}

    @classmethod
    async def open(cls, url: str, page: str, origin: str | None = None) -> PageClient:
        """Connect as a page of `origin` would; default: the server's own."""
        token = generate_jwt_token(generate_session_id())
        request = HTTPRequest(f"ws{url.removeprefix('http')}/{page}/ws", headers={"Origin": origin or url})
        client = cls(await websocket_connect(request, subprotocols=["bokeh", token], max_message_size=2**26))
        await client.receive()  # the greeting
        await client.send("PULL-DOC-REQ", {})
        while await client.receive() != "PULL-DOC-REPLY":
            pass
        return client

    async def send(self, kind: str, content: dict[str, Any]) -> None:
        """A message of Bokeh's protocol without buffers."""
        await self.socket.write_message(json.dumps({"msgid": "1", "msgtype": kind}))
        await self.socket.write_message("{}")
        await self.socket.write_message(json.dumps(content))

    async def change(self, model: str, name: str, value: Any) -> None:
        """Set an attribute of a model."""
        event = {"kind": "ModelChanged", "model": {"id": model}, "attr": name, "new": value}
        self.models[model][name] = value
        await self.send("PATCH-DOC", {"events": [event]})

    def find(self, **wanted: Any) -> str:
        """The id of the model with these attributes."""
        found = [
            model
            for model, attributes in self.models.items()
            if all(attributes.get(name) == value for name, value in wanted.items())
        ]
        assert len(found) == 1, (wanted, found)
        return found[0]

    async def receive(self) -> str:
        """Take in one message; its type."""
        frames = [await self._frame() for _ in range(3)]
        header, content = json.loads(frames[0]), json.loads(frames[2])
        buffers = {}
        for _ in range(header.get("num_buffers", 0)):
            key = json.loads(await self._frame())["id"]
            buffers[key] = await self._frame()
        if header["msgtype"] == "PULL-DOC-REPLY":
            self._collect(content["doc"], buffers)
        for event in content.get("events", ()):
            if "new" in event:
                self._collect(event["new"], buffers)
            if event["kind"] == "ModelChanged":
                self.models.setdefault(event["model"]["id"], {})[event["attr"]] = plain(event["new"], buffers)
            elif event["kind"] == "ColumnDataChanged":
                self.models.setdefault(event["model"]["id"], {})["data"] = plain(event["data"], buffers)
        return header["msgtype"]

    async def _frame(self) -> Any:
        frame = await self.socket.read_message()
        if frame is None:
            raise ConnectionError("the server closed the connection")
        return frame

    def _collect(self, value: Any, buffers: dict[str, bytes]) -> None:
        """Every model in a serialized value."""
        if isinstance(value, list):
            for item in value:
                self._collect(item, buffers)
        elif isinstance(value, dict):
            if value.get("type") == "object" and "id" in value:
                attributes = value.get("attributes", {})
                self.models[value["id"]] = {name: plain(item, buffers) for name, item in attributes.items()}
            for item in value.values():
                self._collect(item, buffers)


def plain(value: Any, buffers: dict[str, bytes]) -> Any:
    """Arrays and maps of a serialized value; models stay as they are."""
    if isinstance(value, list):
        return [plain(item, buffers) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "map":
        return {plain(key, buffers): plain(item, buffers) for key, item in value.get("entries", [])}
    if value.get("type") == "ndarray":
        content = value["array"]
        if isinstance(content, dict) and content.get("type") == "bytes":
            data = content["data"]
            raw = base64.b64decode(data) if isinstance(data, str) else buffers[data["id"]]
            return np.frombuffer(raw, dtype=value["dtype"]).reshape(value["shape"])
        return np.asarray(plain(content, buffers), dtype=value["dtype"])
    return value
