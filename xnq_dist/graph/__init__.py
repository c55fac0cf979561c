"""Graph tables in: ingest, partition, halo plan; and generated graphs."""
