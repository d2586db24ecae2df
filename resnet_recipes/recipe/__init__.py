"""Read files and arguments as a typed, checked recipe."""
