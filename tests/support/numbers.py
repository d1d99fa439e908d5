"""Numbers that chance is made of, from their definition."""

from __future__ import annotations


def splitmix(seed: int) -> list[int]:
    """The reference algorithm: state += gamma; mix."""
    state = seed
    made: list[int] = []
    for _ in range(24):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        made.append(z ^ (z >> 31))
    return made
