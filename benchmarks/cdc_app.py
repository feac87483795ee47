"""The application that the benchmark of capture runs: one database, two tables."""

import os

import headwater as hw

app = hw.App("captured")
app.source(
    hw.cdc(os.environ.get("CAPTURED_URL", "sqlite:///unused.db"), tables=["bought", "streamed"], name="shop")
)
