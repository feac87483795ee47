"""A tour of the log: a broker, a kill in the middle of a load, a transaction, a replay. Run it: make tour."""

import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HEADWATER = str(Path(sys.executable).with_name("headwater"))
RECORDS = 100_000


def start(data: Path, port: int = 0) -> tuple["subprocess.Popen[str]", str, float]:
    """A broker process, its address, and how long it took to be ready."""
    began = time.perf_counter()
    command = [HEADWATER, "broker", "--data", str(data), "--port", str(port)]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout is not None
    line = broker.stdout.readline()
    if " ready at " not in line:
        raise SystemExit(f"the broker did not start: {' '.join(command)}")
    return broker, line.split(" ready at ")[1].split()[0], time.perf_counter() - began


def say(text: str) -> None:
    print(text, flush=True)


def produce_through_a_kill(
    broker: "subprocess.Popen[str]", data: Path, address: str
) -> "subprocess.Popen[str]":
    """Send records with acks=all and kill the broker half way; the producer goes on by itself."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True} | QUIET)
    acknowledged = Counter[bool]()

    def delivered(error: object, _: object) -> None:
        acknowledged[error is None] += 1

    for number in range(RECORDS):
        while True:
            try:
                producer.produce(
                    "clicks", f"click {number}".encode(), str(number % 100).encode(), on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        if number == RECORDS // 2:
            while acknowledged[True] < RECORDS // 4:
                producer.poll(0.05)
            broker.kill()
            broker.wait()
            say(f"   killed the broker (SIGKILL) after {acknowledged[True]:,} acknowledged records")
            broker, _, seconds = start(data, int(address.split(":")[1]))
            say(f"   a new one on the same directory was ready after {seconds:.2f} s")
    producer.flush(60)
    say(f"   {acknowledged[True]:,} records acknowledged, {acknowledged[False]} failed")
    return broker


def count(address: str, isolation: str = "read_committed", topic: str = "clicks") -> Counter[bytes]:
    """How often each value is in the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "tour",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
        | QUIET
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    seen: Counter[bytes] = Counter()
    open_partitions = set(partitions)
    while open_partitions:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                seen[message.value()] += 1
            else:
                open_partitions.discard(message.partition())
    consumer.close()
    return seen


QUIET = {"log_level": 0}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        broker, address, seconds = start(data)
        try:
            say(f"1. A broker at {address}, ready after {seconds:.2f} s, with one directory: {data}")
            admin = AdminClient({"bootstrap.servers": address} | QUIET)
            for made in admin.create_topics([NewTopic("clicks", 4), NewTopic("payments", 1)]).values():
                made.result()
            say(f"2. {RECORDS:,} records with acks=all, and a kill in the middle")
            broker = produce_through_a_kill(broker, data, address)
            seen = count(address)
            say(f"   read back: {len(seen):,} different records, {max(seen.values())} of each")
            say("3. Two transactions, one committed and one aborted")
            payments = Producer({"bootstrap.servers": address, "transactional.id": "till-1"} | QUIET)
            payments.init_transactions(30)
            for value, keep in ((b"kept", True), (b"taken back", False)):
                payments.begin_transaction()
                payments.produce("payments", value)
                payments.flush(30)
                (payments.commit_transaction if keep else payments.abort_transaction)(30)
            for isolation in ("read_uncommitted", "read_committed"):
                values = ", ".join(value.decode() for value in count(address, isolation, "payments"))
                say(f"   {isolation}: {values}")
            broker.send_signal(signal.SIGTERM)
            broker.wait(30)
            say("4. Stopped. Every byte of the log, checked offline:")
            subprocess.run([HEADWATER, "log", "check", str(data)], check=True)
        finally:
            broker.kill()
            broker.wait()


if __name__ == "__main__":
    main()
