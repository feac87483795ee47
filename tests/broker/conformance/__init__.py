"""One set of request scripts, run against Apache Kafka and against Headwater, and held against each other.

A script is a function that sends bare requests; what is compared are the answers, after names, ids and times
that differ from run to run were made equal. ``seen/`` holds what Apache Kafka 4.1.1 answered::

    python -m tests.broker.conformance            # run all scripts against Kafka and write seen/ again
    python -m tests.broker.conformance NAME ...   # only these
"""
