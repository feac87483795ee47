"""Change data capture: every change of a database's tables in the log, once, in Debezium's envelope."""
