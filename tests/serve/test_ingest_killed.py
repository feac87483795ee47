"""Server and broker are killed in the middle of requests with keys; clients repeat them until they are answered."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.serve.ingesting import AT, content, wait_until_healthy
from tests.support.servers import Headwater, free_port

KILLS = int(os.environ.get("HEADWATER_KILLS", "3"))
CLIENTS = 6


def start(bootstrap: str, data: Path, port: int, topic: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.serve.ingesting", bootstrap, str(data), str(port), topic]
    return subprocess.Popen(command)


class Client(threading.Thread):
    """Sends events one after the other, each with a key, each until it has an answer."""

    def __init__(self, number: int, url: str, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number, self.url, self.stopping = number, url, stopping
        self.answers: dict[int, httpx.Response] = {}  # by user
        self.repeated = 0

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self.stopping.is_set():
                user = self.number * 1_000_000 + len(self.answers)
                body = [{"user": user, "page": page, "at": AT} for page in ("/a", "/b")]
                while True:
                    try:
                        answer = client.post(self.url, json=body, headers={"Idempotency-Key": f"key-{user}"})
                        if answer.status_code == 200:
                            break
                        assert answer.status_code in (429, 503), answer.text
                    except httpx.TransportError:
                        pass
                    self.repeated += 1
                    time.sleep(0.05)
                self.answers[user] = answer


def test_each_event_is_there_once_whoever_is_killed(tmp_path: Path, topic: str) -> None:
    with Headwater() as broker:
        kill_and_compare(broker, tmp_path, topic)


def kill_and_compare(headwater: Headwater, tmp_path: Path, topic: str) -> None:
    port, stopping, chance = free_port(), threading.Event(), random.Random(6)
    base = f"http://127.0.0.1:{port}"
    server = start(headwater.bootstrap, tmp_path, port, topic)
    clients = [Client(number, f"{base}/topics/{topic}", stopping) for number in range(CLIENTS)]
    try:
        with httpx.Client(base_url=base, timeout=30) as probe:
            wait_until_healthy(probe)
            for client in clients:
                client.start()
            for number in range(KILLS):
                done = sum(len(client.answers) for client in clients)
                while sum(len(client.answers) for client in clients) < done + 3 * CLIENTS:
                    time.sleep(0.01)
                time.sleep(chance.uniform(0, 0.05))
                if number % 3 == 1:
                    headwater.kill()
                    headwater.start()
                    continue
                server.send_signal(signal.SIGKILL)
                server.wait()
                if chance.random() < 0.3:  # what is kept beside the log can be rebuilt from it
                    for file in (tmp_path / "ingest").glob("*"):
                        file.unlink()
                server = start(headwater.bootstrap, tmp_path, port, topic)
                wait_until_healthy(probe)
            stopping.set()
            for client in clients:
                client.join(60)
                assert not client.is_alive()
            # After a restart a repetition still gets the answer of the first.
            user, answer = next(iter(clients[0].answers.items()))
            body = [{"user": user, "page": page, "at": AT} for page in ("/a", "/b")]
            again = probe.post(f"/topics/{topic}", json=body, headers={"Idempotency-Key": f"key-{user}"})
            assert again.content == answer.content and again.headers["Idempotent-Replayed"] == "true"
    finally:
        stopping.set()
        server.kill()
        server.wait()
    assert sum(client.repeated for client in clients) >= KILLS
    records = content(headwater.bootstrap, topic)
    sent = {user: response for client in clients for user, response in client.answers.items()}
    assert Counter((each["value"]["user"], each["value"]["page"]) for each in records) == Counter(
        (user, page) for user in sent for page in ("/a", "/b")
    )
    placed = {(each["partition"], each["offset"]): each["value"]["user"] for each in records}
    for user, response in sent.items():
        for event in response.json()["events"]:
            assert placed[event["partition"], event["offset"]] == user
