"""From files and words to a typed, checked recipe."""
