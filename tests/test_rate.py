"""A rate over a sliding window: what is above a limit, and from when on it is not."""

from random import Random

import pytest

from barnabas.rate import SlidingRate
from barnabas.types import Millis

SECOND = 1000


def rate_of(*added: tuple[int, int], windows: int = 11, window_ms: int = SECOND) -> SlidingRate:
    rate = SlidingRate(windows=windows, window_ms=window_ms)
    for amount, at in added:
        rate.add(amount, Millis(at))
    return rate


@pytest.mark.parametrize(
    ("added", "now", "expected"),
    [
        ((), 5000, 0),
        # Over one window at the least, and then over the time since the first amount.
        (((600, 1000),), 1000, 600),
        (((600, 1000),), 1999, 600),
        (((600, 1000),), 3000, 300),
        (((600, 1000), (600, 3000)), 3000, 600),
        # The newest eleven windows count, with those that have nothing.
        (((1100, 1000),), 11_999, 100.0 * 11_000 / 10_999),
        (((1100, 1000),), 12_000, 0),
        (((1100, 1000), (500, 11_500)), 12_000, 50),
        (((1100, 1000), (500, 11_500)), 22_000, 0),
        # After a time without anything it begins anew.
        (((1100, 1000), (500, 40_000)), 40_000, 500),
        (((1100, 1000), (500, 40_000)), 42_000, 250),
    ],
)
def test_the_rate_is_what_went_by_over_the_time_it_took(
    added: tuple[tuple[int, int], ...], now: int, expected: float
) -> None:
    assert rate_of(*added).rate(Millis(now)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("added", "limit", "now", "expected"),
    [
        ((), 100, 7000, 7000),
        (((100, 1000),), 100, 1000, 1000),
        (((101, 1000),), 100, 1000, 2010),
        (((1000, 1000),), 100, 1000, 11_000),
        # More than all windows let through is forgotten with its window.
        (((5000, 1000),), 100, 1000, 12_000),
        (((5000, 1000), (5000, 4200)), 100, 5000, 15_000),
        # A limit of nothing waits until all is forgotten.
        (((1, 1000),), 0, 1000, 12_000),
        (((300, 1000),), 100, 9000, 9000),
    ],
)
def test_a_rate_tells_from_when_on_it_is_not_above_a_limit(
    added: tuple[tuple[int, int], ...], limit: int, now: int, expected: int
) -> None:
    assert rate_of(*added).falls_to(limit, Millis(now)) == expected


@pytest.mark.parametrize("seed", range(200))
def test_the_time_that_a_rate_tells_is_the_first_at_which_it_is_not_above(seed: int) -> None:
    dice = Random(seed)
    rate = SlidingRate(windows=dice.randint(1, 6), window_ms=dice.choice((1, 7, 20)))
    now = Millis(dice.randint(0, 50))
    limit = dice.choice((0, 1, 300, 5000))
    for _ in range(40):
        now = Millis(now + dice.choice((0, 0, 1, 3, 30, 200)))
        rate.add(dice.choice((0, 1, 10, 100)), now)
        falls = rate.falls_to(limit, now)
        assert not rate.is_above(limit, falls)
        assert all(rate.is_above(limit, Millis(at)) for at in range(now, falls))


def test_no_more_passes_than_the_limit_lets_through_and_a_piece() -> None:
    """As a throttle uses it: a piece passes whenever the rate is not above the limit."""
    rate, limit, piece = SlidingRate(windows=11, window_ms=SECOND), 1_000_000, 100_000
    now, passed, begun = Millis(5000), 0, 5000
    for _ in range(2000):
        now = rate.falls_to(limit, now)
        rate.add(piece, now)
        passed += piece
        # A first second's worth may go at once, and what is a piece too much is forgotten in the end.
        pieces = 1 + (now - begun) // (10 * SECOND)
        assert passed <= limit * max(SECOND, now - begun) // SECOND + pieces * piece
    assert passed == pytest.approx(limit * (now - begun) / SECOND, rel=0.02)


def test_what_is_about_to_pass_counts_where_it_is_asked_for() -> None:
    rate = rate_of((900, 1000))
    assert not rate.is_above(1000, Millis(1000), 100)
    assert rate.is_above(1000, Millis(1000), 101)
    assert rate.rate(Millis(1000)) == 900


def test_time_that_goes_back_takes_nothing_away() -> None:
    rate = rate_of((100, 5000), (100, 9000), (100, 4000))
    assert rate.rate(Millis(9000)) == pytest.approx(75)
