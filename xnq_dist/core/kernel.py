"""How kernels are compiled, in one place."""

from __future__ import annotations

from numba import njit

__all__ = ["inlined", "kernel"]

kernel = njit(cache=True, nogil=True, error_model="numpy")
"""Compiles a function at its first call, for the types of its arguments. The result is
kept on disk, runs without Python's global interpreter lock, and divides by 0 as NumPy
does."""
inlined = njit(cache=True, nogil=True, error_model="numpy", inline="always")
"""The same, of a function that becomes part of the kernels that call it."""
