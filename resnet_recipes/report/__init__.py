"""Console output, records, comparisons and report pages of runs."""
