"""The partitioned log on disk, in Apache Kafka's own file format. Pure storage, no network."""
