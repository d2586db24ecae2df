"""Shared foundations: errors, durations, schedules, names, paths and files.

Standard library only.
"""
