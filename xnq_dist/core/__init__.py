"""What every stage stands on: settings, errors, store, cluster, arrays. Knows no stage."""
