"""What every part rests on: errors, durations, schedules, names, paths, files; standard library only."""
