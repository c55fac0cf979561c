"""What all stages stand on: settings, errors, store, cluster, arrays; no stage."""
