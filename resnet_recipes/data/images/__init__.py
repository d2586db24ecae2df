"""A storage of encoded images, whose crops become rows of a batch, in Python or in the native engine."""
