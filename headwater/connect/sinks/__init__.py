"""What follows topics outside: a cache in Redis, a search index, files for the warehouse."""
