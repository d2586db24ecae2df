"""Train, evaluate, measure or fit, in one process or in ranks started by a launcher."""
