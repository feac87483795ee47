"""Functions of an application's own file, and of files beside it, in Spark's workers."""

from pathlib import Path

from headwater.streams.loading import load_app
from tests.streams.conftest import Bench, settle

APPLICATION = """
from pyspark.sql import functions as F
import headwater as hw
from shipped_prices import in_cents

app = hw.App("shipped")
app.stream("prices", "id long, euros double")

@F.udf("long")
def cents(euros):
    return in_cents(euros)

@app.view(key="id")
def in_small_coins(prices):
    return prices.select("id", cents("euros").alias("cents"))
"""


def test_workers_get_functions_that_they_cannot_import(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "shipped_prices.py").write_text(
        "HUNDRED = 100\n\ndef in_cents(euros):\n    return round(euros * HUNDRED)\n"
    )
    (tmp_path / "shipped.py").write_text(APPLICATION)
    with bench.running(load_app(str(tmp_path / "shipped.py"))) as engine:
        bench.send("prices", [{"id": 1, "euros": 2.5}, {"id": 2, "euros": 0.01}])
        settle(engine)
        assert {row["id"]: row["cents"] for row in engine.store.rows("in_small_coins")} == {1: 250, 2: 1}
