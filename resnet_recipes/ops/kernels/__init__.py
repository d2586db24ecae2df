"""Triton kernels and their launches.

Import them on first use only, as not every platform has Triton.
"""
