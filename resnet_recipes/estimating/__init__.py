"""What a run will take: one arithmetic, and the speeds that were measured or are expected."""
