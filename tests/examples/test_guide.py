"""The application that docs/streams.md writes, block by block, is one that Spark can run."""

import re
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.streams.inputs import events
from headwater.streams.loading import load_app
from headwater.streams.planning import plan
from headwater.streams.settings import load_stream_settings

GUIDE = Path(__file__).parents[2] / "docs" / "streams.md"


def test_the_application_of_the_guide_can_be_planned(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "guide.py"
    file.write_text("\n".join(blocks))
    graph = load_app(str(file)).graph()
    settings = load_stream_settings(data=tmp_path, environ={}, directory=tmp_path)
    planned = plan(
        spark,
        graph,
        lambda stream, quick: events(spark, stream, settings, connector=quick, realtime=quick),
    )
    modes = {pipeline.output.name: pipeline.mode for pipeline in planned.pipelines}
    assert modes == {
        "users": "append",
        "clicks_by_page": "update",
        "warmest": "update",
        "visits": "append",
        "rates": "update",
        "answered": "append",
        "first_clicks": "update",
        "archive": "append",
        "front_page": "update",
        "clicks_by_page_ever": "update",
    }
    assert [view.output.name for view in planned.recomputed] == ["users_by_country", "top_pages"]
    assert {"payments", "orders"} <= set(planned.streams)
