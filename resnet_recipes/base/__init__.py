"""Shared foundations, with the standard library only.

Errors and suggestions, sections and limits, durations, schedules, names, text, paths, files,
processes and cores.
"""
