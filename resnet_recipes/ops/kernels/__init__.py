"""Triton kernels and what launches them; to be imported on first use, as not every platform has Triton."""
