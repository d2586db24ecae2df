"""Input: from image files to batches."""
