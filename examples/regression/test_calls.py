"""What must hold of every session, beyond that it replays the same."""

from replay.pytest_plugin import Replayed

PARSER = "my_parser.py:Parser"


def test_the_message_does_not_depend_on_how_tokens_are_grouped(replayed: Replayed) -> None:
    """An engine may send one token a step, or several."""
    for result in replayed("traces", parser=PARSER, splits=("recorded", "one", "token", "rand:1:5")):
        assert result.verdict == "same", result.differences
        assert not result.split_groups


def test_nothing_leaks_wherever_a_session_is_cut_short(replayed: Replayed) -> None:
    """As a limit of tokens may cut it, at each of them."""
    for result in replayed("traces", parser=PARSER, layer="message", cut=True):
        assert not result.breaches
        assert result.cuts > 0
