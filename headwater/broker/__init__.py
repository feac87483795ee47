"""The Kafka protocol over headwater.log: connections, handlers, group and transaction coordinators."""
