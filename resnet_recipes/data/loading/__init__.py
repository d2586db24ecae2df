"""The one loader: batches that are filled ahead of training, whatever stores the images."""
