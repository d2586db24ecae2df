"""The loader shared by all backends.

Fills batches ahead of training, however the images are stored.
"""
