"""Train, evaluate, measure or fit, in one process or in ranks that a launcher starts."""
