"""Change data capture from PostgreSQL: logical replication, read with an own decoder of pgoutput."""
