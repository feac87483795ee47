"""Run the scripts against an Apache Kafka and keep what it answers."""

import sys

from tests.broker.conformance.exhaustion import NAME, epochs_that_run_out
from tests.broker.conformance.script import run_script
from tests.broker.conformance.scripts import SCRIPTS
from tests.broker.conformance.seen import write_seen
from tests.support.servers import ApacheKafka


def main(names: list[str]) -> None:
    SCRIPTS[NAME] = epochs_that_run_out
    with ApacheKafka() as server:
        for name in names or SCRIPTS:
            write_seen(name, run_script(name, server.port, is_patient=True))
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
