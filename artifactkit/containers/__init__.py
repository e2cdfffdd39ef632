"""Bounded readers of bytes: each file holds one container, the standard library is all they stand on.

What they share: a count or a size that a file claims is checked against the bytes that are left before anything is
allocated or looped over, and a lie is a Corrupt with its place.
"""
