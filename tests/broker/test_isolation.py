"""A slow disk and a slow client hold up nobody else, and cost no memory."""

import asyncio
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headwater.broker import server as _server  # registers the APIs
from headwater.broker.broker import Broker
from headwater.broker.connection import Connection
from headwater.broker.settings import BrokerSettings
from headwater.log.records import build_batch
from tests.broker.wire_client import WireClient, encode_request
from tests.support.servers import Headwater

assert _server


class InProcess:
    """A broker on a loop in a thread of this process, so that a test can get at its insides."""

    def __init__(self, data: Path) -> None:
        self._ready: Future[int] = Future()
        self._data = data
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.port = self._ready.result(30)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self.broker = Broker(BrokerSettings(self._data, port=0), self.loop)
            await self.broker.start()
            server = await self.loop.create_server(lambda: Connection(self.broker), "127.0.0.1", 0)
        except BaseException as error:
            self._ready.set_exception(error)
            raise
        self.broker.port = server.sockets[0].getsockname()[1]
        self._ready.set_result(self.broker.port)
        await self._stop.wait()
        server.close()
        await self.broker.stop()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcess]:
    running = InProcess(tmp_path / "data")
    yield running
    running.stop()


def _create(client: WireClient, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = client.call("create_topics", 5, topics=[topic], timeout=30_000)
    assert answer["topics"][0]["error_code"] == "none"


def _produce(topic: str, value: bytes, acks: int) -> dict[str, Any]:
    batch = build_batch([(None, value, (), int(time.time() * 1000))])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return {"acks": acks, "timeout": 30_000, "topic_data": data}


def _fetch(topic: str, offset: int, max_wait: int = 0) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }


def test_a_sync_that_hangs_holds_up_neither_readers_nor_weaker_writers(
    broker: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireClient(broker.port) as writer, WireClient(broker.port) as other:
        for name in ("slow", "quick"):
            _create(writer, name)
        writer.call("produce", 7, **_produce("quick", b"before", acks=-1))
        hanging, let_go = threading.Event(), threading.Event()
        really_sync = os.fdatasync

        def hang(descriptor: int) -> None:
            hanging.set()
            assert let_go.wait(30)
            really_sync(descriptor)

        monkeypatch.setattr(os, "fdatasync", hang)
        answered: Future[Any] = Future()
        request = _produce("slow", b"waits", acks=-1)
        waiting = threading.Thread(target=lambda: answered.set_result(writer.call("produce", 7, **request)))
        waiting.start()
        assert hanging.wait(30)

        read = other.call("fetch", 11, **_fetch("quick", 0))
        assert read["responses"][0]["partitions"][0]["records"]
        weak = other.call("produce", 7, **_produce("quick", b"acks=1", acks=1))
        assert weak["responses"][0]["partition_responses"][0]["error_code"] == "none"
        assert other.call("metadata", 8, topics=None)["brokers"]
        # What is not durable is neither acknowledged nor shown.
        assert not answered.done()
        unsynced = other.call("fetch", 11, **_fetch("slow", 0))["responses"][0]["partitions"][0]
        assert (unsynced["high_watermark"], unsynced["records"] or b"") == (0, b"")

        let_go.set()
        waiting.join(30)
        assert answered.result(1)["responses"][0]["partition_responses"][0]["error_code"] == "none"
        synced = other.call("fetch", 11, **_fetch("slow", 0, max_wait=5_000))["responses"][0]["partitions"][0]
        assert synced["high_watermark"] == 1
        assert synced["records"]


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_clients_that_do_not_read_cost_little_and_hold_up_nobody(tmp_path: Path) -> None:
    megabytes, deaf_clients, fetches = 16, 8, 40
    with Headwater(tmp_path / "data") as server, WireClient(server.port) as client:
        _create(client, "big")
        for _ in range(megabytes):
            client.call("produce", 7, **_produce("big", os.urandom(900_000), acks=1))
        client.call("fetch", 11, **_fetch("big", 0, max_wait=5_000))
        before = _resident_bytes(server.pid)
        deaf = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(deaf_clients)]
        request = encode_request("fetch", 11, 7, "deaf", _fetch("big", 0))
        frame = struct.pack(">i", len(request)) + request
        for connection in deaf:
            connection.settimeout(0.2)
            try:
                for _ in range(fetches):
                    connection.sendall(frame)
            except TimeoutError:
                pass  # the broker has stopped reading from it, as it should
        for _ in range(50):
            assert client.call("fetch", 11, **_fetch("big", 0))["responses"]
        grown = _resident_bytes(server.pid) - before
        asked = deaf_clients * fetches * 900_000
        assert grown < asked / 4, f"{grown:,} bytes for {asked:,} that nobody reads"
        # A deaf client that starts to listen gets whole answers, in order.
        size = struct.unpack(">i", _receive(deaf[0], 4))[0]
        assert struct.unpack(">i", _receive(deaf[0], size)[:4])[0] == 7
        for connection in deaf:
            connection.close()


def _receive(connection: socket.socket, size: int) -> bytes:
    connection.settimeout(30)
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(size - len(content))
        assert piece, "the connection ended"
        content += piece
    return bytes(content)
