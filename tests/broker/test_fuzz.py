"""Spoiled frames by the ten thousand (``make fuzz``: by the million) against a running broker.

The broker must go on serving a healthy client, must not print a traceback, and must not grow.
``HEADWATER_FRAMES`` is the number of frames, ``HEADWATER_SEED`` repeats a run.
"""

import os
import random
import time
import uuid
from collections import Counter
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.fuzz.attack import Attacker, SlowLoris
from tests.support.fuzz.bystander import HEALTHY_TOPIC, Bystander, Janitor, Watch
from tests.support.fuzz.complaints import complaints
from tests.support.fuzz.seeds import TOPICS, Seeds, advertised
from tests.support.servers import ApacheKafka, Headwater, Server

FRAMES = int(os.environ.get("HEADWATER_FRAMES", "15000"))
SEED = int(os.environ.get("HEADWATER_SEED", "20260711"))
ATTACKERS = 6
SLOWEST = 60.0  # frames a second, far below what any machine does: when to give up
MEGABYTE = 1 << 20


def broker() -> Server:
    """``HEADWATER_FUZZ_SERVER=kafka`` tries the fuzzer itself on Apache Kafka."""
    return ApacheKafka() if os.environ.get("HEADWATER_FUZZ_SERVER") == "kafka" else Headwater()


@pytest.mark.timeout(300 + FRAMES / SLOWEST)
def test_spoiled_frames_do_no_harm() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(broker())
        janitor = Janitor(server.bootstrap)
        janitor.prepare()
        address = ("127.0.0.1", server.port)
        offered = advertised(*address)
        ids, dice = topic_ids(server.bootstrap), random.Random(SEED)
        seeds = Seeds(dice, ids).build(offered, each=6) + Seeds(dice, ids, wild=0.15).build(offered, each=14)
        watch = Watch(server.pid)
        bystander = Bystander(server.bootstrap)
        loris = SlowLoris(address, seeds, 20, random.Random(SEED))
        attackers = [
            Attacker(address, seeds, random.Random(SEED * 1000 + number)) for number in range(ATTACKERS)
        ]
        threads: list[Watch | Bystander | SlowLoris | Attacker] = [watch, bystander, loris, *attackers]
        for thread in threads:
            thread.start()
            stack.callback(thread.stop)

        print(f"\nseed {SEED}: {len(seeds)} seeds of {len(offered)} APIs, {ATTACKERS} attackers")
        started = time.monotonic()
        warm = run_until(FRAMES // 4, attackers, bystander, janitor, watch, server)
        run_until(FRAMES, attackers, bystander, janitor, watch, server)
        took = time.monotonic() - started
        for attacker in attackers:
            attacker.stop()
        for attacker in attackers:
            attacker.join(30)
        loris.stop()
        loris.join(30)
        bystander.stop()
        end = settle(janitor, watch, sockets=warm["sockets"])

        outcomes: Counter[str] = sum((attacker.outcomes for attacker in attackers), Counter())
        frames = sum(attacker.frames for attacker in attackers)
        print(f"{frames} frames dealt with in {took:.0f} s, {frames / took:.0f} frames/s")
        print(", ".join(f"{what}: {count}" for what, count in outcomes.most_common()))
        print(f"memory in MB: warm {mb(warm['memory'])}, peak {mb(watch.peak)}, end {mb(end['memory'])}")
        for what in ("files", "sockets"):
            print(f"open {what}: warm {warm[what]}, end {end[what]}")
        print(f"bystander: {bystander.summary()}; topics and groups removed: {janitor.removed}")

        found = complaints(server.output())
        if found:
            examples = "\n\n".join(found.values())
            pytest.fail(
                "unhandled errors in the broker's log:\n" + "\n".join(found) + f"\n\n{examples[:8000]}"
            )
        assert bystander.failure is None, f"a healthy client failed: {bystander.failure!r}"
        assert all(attacker.failure is None for attacker in attackers)
        assert outcomes["answered"] > frames / 10 and outcomes["closed"] > frames / 100, "a lopsided run"
        assert watch.peak < 600 * MEGABYTE, "memory is not bounded"
        assert end["memory"] < 1.2 * warm["memory"] + 24 * MEGABYTE, "memory grows"
        assert end["sockets"] <= warm["sockets"], "connections are left open"
        assert end["files"] <= warm["files"] + 20, "files are left open"
        assert max(bystander.round_trips) < 10, "a request held up everybody"

        assert server.stop() == (143 if isinstance(server, ApacheKafka) else 0)
        server.start()
        assert_nothing_was_lost(server.bootstrap, len(bystander.round_trips))


def run_until(
    frames: int,
    attackers: list[Attacker],
    bystander: Bystander,
    janitor: Janitor,
    watch: Watch,
    server: Server,
) -> dict[str, int]:
    """Let the attack go on until so many frames were dealt with; what the broker holds then."""
    deadline = time.monotonic() + 120 + frames / SLOWEST
    swept = 0.0
    while (done := sum(attacker.frames for attacker in attackers)) < frames:
        assert server.running, f"the broker ended:\n{server.output()[-4000:]}"
        assert time.monotonic() < deadline, f"only {done} of {frames} frames were dealt with"
        if bystander.failure is not None:
            said = [line for line in server.show_stacks().splitlines() if " closing /" not in line]
            raise AssertionError(
                f"a healthy client failed after {done} frames. The broker's log, without what it closed:\n"
                + "\n".join(said[-200:])
            ) from bystander.failure
        if time.monotonic() > swept + 3:
            janitor.sweep()
            swept = time.monotonic()
        time.sleep(0.1)
    janitor.sweep()
    return {"memory": watch.memory(), "files": watch.files(), "sockets": watch.sockets()}


def settle(janitor: Janitor, watch: Watch, sockets: int) -> dict[str, int]:
    """What the broker holds when it had time to notice that its clients are gone."""
    deadline = time.monotonic() + 30
    while True:
        janitor.sweep()
        now = {"memory": watch.memory(), "files": watch.files(), "sockets": watch.sockets()}
        if now["sockets"] <= sockets - ATTACKERS or time.monotonic() > deadline:
            return now
        time.sleep(0.5)


def topic_ids(bootstrap: str) -> list[uuid.UUID]:
    """The ids of the topics that the seeds name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection(TOPICS))
    ids = [future.result(30).topic_id for future in described.values()]
    # Two halves of 64 bits, signed, most significant first.
    mask = (1 << 64) - 1
    return [
        uuid.UUID(
            int=(one.get_most_significant_bits() & mask) << 64 | one.get_least_significant_bits() & mask
        )
        for one in ids
    ]


def assert_nothing_was_lost(bootstrap: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "after", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(HEALTHY_TOPIC, 0, 0)])
        found: list[bytes | str | None] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(1000, 1) if message.error() is None]
        assert found[:count] == [str(number).encode() for number in range(count)]
    finally:
        consumer.close()


def mb(size: int) -> int:
    return size // MEGABYTE
