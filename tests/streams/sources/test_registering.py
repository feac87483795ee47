"""How Spark gets to know our source."""

from pyspark.sql import SparkSession

from headwater.streams.sources.opening import open_stream
from headwater.streams.sources.topic_read import TopicRead
from tests.support.servers import Headwater


def test_queries_that_start_at_once_leave_the_function_whole(
    spark: SparkSession, headwater: Headwater
) -> None:
    """Each writes to the environment of the source's one Python function: a map that bears it."""
    open_stream(spark, TopicRead(headwater.bootstrap, ("registering",)), check=False)
    registered = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("headwater")
    environment = registered.dataSourceCls().envVars()
    assert environment.getClass().getSimpleName() == "ConcurrentHashMap"
    assert isinstance(spark.sparkContext.environment, dict)
