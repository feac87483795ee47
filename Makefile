# make setup   the environment .venv and the command .venv/bin/headwater, from PyPI alone
# make test    that, what the tests need besides, then lint, types and all tests
# The rest is one line each below.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TYPED := headwater tests/support tests/faults benchmarks

.PHONY: help setup test test-wide test-dependencies packages-and-jars python lint check commands clients conformance conformance-cdc faults faults-streams faults-connect faults-serve scale fuzz bench-log bench-streams bench-many bench-subscriptions bench-cdc bench-serve demo tour clean

help: ## What can be made
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 17

setup: $(VENV)/.setup ## The environment .venv with what running needs

# Before anything else is installed: apt-get cannot run twice at once.
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Headwater needs Python 3.11 or later; say which with make PYTHON=python3.x" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
			|| { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install python3-venv; }

# The stamp is newer than pyproject.toml when the environment is up to date.
$(VENV)/.setup: pyproject.toml | python
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q --editable .
	touch $@

$(VENV)/.test-setup: $(VENV)/.setup pyproject.toml
	$(BIN)/python -m pip install -q --group test
	touch $@

# One waits for the processor, the other for the network.
test-dependencies: ## What the tests need: PyPI, Debian packages, jars
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.test-setup packages-and-jars

packages-and-jars: python
	$(PYTHON) -m tests.support.packages
	$(PYTHON) -m tests.support.jars

test: test-dependencies ## Lint, types, and all tests that have no target of their own
	$(MAKE) --no-print-directory check
	$(BIN)/python -m tests.support.together

test-wide: test-dependencies ## What make test leaves out for its length, beside make clients and make commands
	HEADWATER_WIDE=1 $(BIN)/python -m pytest -m wide

lint: $(VENV)/.test-setup check ## Style and types

check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)

clients: test-dependencies ## Every version of every client, every way to share a topic, and clients in Go and JavaScript
	HEADWATER_WIDE=1 HEADWATER_TEST_CLIENTS=all $(BIN)/python -m pytest tests/clients
	HEADWATER_TEST_CLIENTS=more $(BIN)/python -m pytest tests/clients/test_produce.py tests/clients/test_groups.py \
		tests/clients/test_static_members.py tests/clients/test_transactions.py tests/clients/test_offsets.py \
		tests/clients/test_admin.py

commands: test-dependencies ## Every case of the command line and the client against both brokers
	HEADWATER_TEST_SERVERS=both $(BIN)/python -m pytest tests/cli tests/client

conformance: test-dependencies ## All of what Apache Kafka was seen to answer, and longer histories of transactions
	HEADWATER_TEST_SERVERS=both HEADWATER_EXAMPLES=$${HEADWATER_EXAMPLES:-50} $(BIN)/python -m pytest --timeout 3600 \
		tests/broker/test_conformance.py tests/broker/test_transactions.py

conformance-cdc: test-dependencies ## Capture beside the real Debezium, and whether what was recorded of it still holds
	HEADWATER_WIDE=1 HEADWATER_DEBEZIUM=run $(BIN)/python -m pytest tests/connect/debezium --timeout 600

faults: test-dependencies ## 200 kills of a broker under load (HEADWATER_KILLS)
	HEADWATER_KILLS=$${HEADWATER_KILLS:-200} $(BIN)/python -m pytest tests/faults --ignore tests/faults/streams \
		--ignore tests/faults/connect \
		--timeout 7200 -s

faults-streams: test-dependencies ## 50 kills each of driver, Java, workers, broker and PostgreSQL under a pipeline
	HEADWATER_KILLS=$${HEADWATER_KILLS:-50} $(BIN)/python -m pytest tests/faults/streams -s

faults-connect: test-dependencies ## 100 kills of connector, broker and database under capture, and snapshots of a million rows
	HEADWATER_KILLS=$${HEADWATER_KILLS:-60} HEADWATER_ROWS=$${HEADWATER_ROWS:-1000000} $(BIN)/python -m pytest \
		tests/faults/connect --timeout 7200 -s

faults-serve: test-dependencies ## 60 kills of the server in the middle of requests with idempotency keys
	HEADWATER_KILLS=$${HEADWATER_KILLS:-60} $(BIN)/python -m pytest tests/serve/test_ingest_killed.py --timeout 3600 -s

scale: test-dependencies ## The examples on Apache Kafka, a Spark cluster and PostgreSQL, with kills in the middle
	HEADWATER_SCALE=1 $(BIN)/python -m pytest tests/scale -s

fuzz: test-dependencies ## A million mutated frames (HEADWATER_FRAMES, HEADWATER_SEED)
	HEADWATER_FRAMES=$${HEADWATER_FRAMES:-1000000} $(BIN)/python -m pytest tests/broker/test_fuzz.py --timeout 7200 -s

bench-log: test-dependencies ## The embedded broker beside Apache Kafka; keeps the table in docs/benchmarks.md
	$(BIN)/python -m benchmarks.log --write docs/benchmarks.md $(BENCH)

bench-streams: test-dependencies ## Streams beside Flink, Quix Streams, Bytewax and Pathway (BENCH=--quick: shorter)
	$(BIN)/python -m benchmarks.streams --write docs/benchmarks.md $(BENCH)

bench-many: test-dependencies ## What ten views over four streams cost, and where the time of a million events goes
	$(BIN)/python -m benchmarks.streams_many --write docs/benchmarks.md $(BENCH)

bench-subscriptions: test-dependencies ## A thousand clients that follow one view, a third of them coming and going
	$(BIN)/python -m benchmarks.subscriptions --write docs/benchmarks.md $(BENCH)

bench-cdc: test-dependencies ## Capture beside Debezium, PostgreSQL and MariaDB (BENCH=--quick: shorter)
	$(BIN)/python -m benchmarks.cdc --write docs/benchmarks.md $(BENCH)

bench-serve: test-dependencies ## Reads of rows over HTTP beside bare servers and Datasette (BENCH=--quick: shorter)
	$(BIN)/python -m benchmarks.reads --write docs/benchmarks.md $(BENCH)

demo: setup ## A shop, live: the dashboard is at http://127.0.0.1:8080 (DEMO="--seconds 60")
	$(BIN)/python -m examples.shop $(DEMO)

tour: setup ## A short tour of the log
	$(BIN)/python examples/log_tour.py

clean: ## Remove the environment, caches and fetched jars
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
