"""What a run by default leaves out exists."""

from pathlib import Path

from support.slow import SLOW, SWEEPS

TESTS = Path(__file__).parents[1]


def test_every_file_with_slow_tests_exists():
    assert [file for file in SLOW | SWEEPS if not (TESTS / file).exists()] == []


def test_slow_tests_and_their_cases_exist(slow_but_not_there):
    """Of the files that were collected: all of them in a run of the whole suite."""
    assert slow_but_not_there == [], slow_but_not_there
