"""The application that is killed: one database, captured whole but for what the test keeps for itself."""

import os

import headwater as hw

app = hw.App("captured")
app.source(
    hw.cdc(
        os.environ.get("CAPTURED_URL", "sqlite:///unused.db"),
        tables=os.environ.get("CAPTURED_TABLES", "items").split(","),
        name="shop",
        chunk_rows=int(os.environ.get("CAPTURED_CHUNK", "500")),
    )
)
