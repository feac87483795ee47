"""An application whose function fails on some events."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

app = hw.App("broken")
numbers = app.stream("numbers", "text string")


@app.view(key="half")
def halves(numbers: DataFrame) -> DataFrame:
    def half_of(text: str) -> int:
        if text == "odd":
            raise ValueError("an odd number cannot be halved")
        return 0

    return numbers.groupBy(F.udf(half_of, "long")("text").alias("half")).count()
