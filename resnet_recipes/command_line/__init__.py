"""Read the arguments of commands and print tables and help pages."""
