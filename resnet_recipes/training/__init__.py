"""One rank's training: from a built run to trained weights."""
