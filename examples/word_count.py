"""Counts words.

Try it::

    headwater up examples/word_count.py --data data
    echo '{"text": "the log is the source"}' | headwater produce lines
    headwater views word_count --data data --order -count
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw

app = hw.App("words")

lines = app.stream("lines", "text string")


@app.view(key="word")
def word_count(lines: DataFrame) -> DataFrame:
    words = lines.select(F.explode(F.split(F.lower("text"), r"\W+")).alias("word"))
    return words.where("word <> ''").groupBy("word").count()
