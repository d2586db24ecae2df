"""Everything around training: checks, new runs, resuming, sweeps, evaluation, teachers."""
