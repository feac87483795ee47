"""Programs we did not write, unchanged, against the broker.

``drivers/`` has one small program for each client library, all with the same commands (``peer.py``); the
tests that say "every client" run once for each of them. The others try what only one program has: Kafka's
own tools, Kafka Streams, Kafka Connect, Spark, kcat, and the whole of an admin interface.

``HEADWATER_TEST_SERVER=kafka`` runs all of it against Apache Kafka: what fails there is a fault of the tests.
``HEADWATER_TEST_CLIENTS=more`` runs the clients of ``more/`` (Go, JavaScript) in place of the usual ones.
"""
