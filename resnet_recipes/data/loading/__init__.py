"""The loader shared by all backends: fills batches ahead of training, however the images are stored."""
