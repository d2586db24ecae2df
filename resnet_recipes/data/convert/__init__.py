"""Conversion of class folders to .beton files."""
