"""What a trained network is used for: evaluation, prediction, export."""
