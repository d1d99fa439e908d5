"""What does not count as a difference here."""

from replay import Difference


def how_it_ends(difference: Difference) -> bool:
    """Why a session ended: only what it says matters."""
    return difference.kind == "finish_reason"
