"""Triton kernels and their launches; import them on first use only, as not every platform has Triton."""
