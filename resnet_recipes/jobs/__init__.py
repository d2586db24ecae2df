"""Train, evaluate, measure or fit a micro-batch, in one process or in ranks."""
