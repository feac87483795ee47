"""Clients in Go and JavaScript, for ``make clients``: they need toolchains and minutes of compiling."""
