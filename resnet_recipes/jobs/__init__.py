"""What processes do: train, evaluate, measure or fit, alone or as ranks that a launcher starts."""
