"""Clients in Go and JavaScript, for ``make test-clients``: they need toolchains and minutes of compiling."""
