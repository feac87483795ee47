"""What brings events in and takes results out, outside Spark: change data capture, and sinks that follow topics."""
