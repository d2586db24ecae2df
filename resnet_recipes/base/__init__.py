"""What every part rests on: errors, durations, schedules, names, paths, files.

Standard library only.
"""
