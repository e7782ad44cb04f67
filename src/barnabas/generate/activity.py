"""`generate activity`: what the visitors of a shop do, as JSON; the key is the visitor.

    {"time": "2026-01-31T12:00:00.123Z", "user": "u004711", "event": "view", "page": "/products/17"}
    {..., "event": "search", "page": "/search", "query": "lamp"}
    {..., "event": "click", "page": "/products/17", "target": "add-to-cart"}

A visitor acts every 15 s or so for 1 to 24 events and comes back hours later. The record's timestamp is when it
arrived, `time` is when it happened: two seconds earlier at most, but 2 % come up to four minutes late and 0.1 % hours.

How rows become visits without any state: there are as many slots as visitors at a time, and row N belongs to slot
N modulo slots. In stretches of 24 turns a slot is given to one visitor after another, for 1, 2, 3, ... turns each.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.generate.columns import iso_moments, joined, table
from barnabas.generate.dice import Dice, falling, words_of
from barnabas.generate.stream import Clock, Stream

PAGES = ["/", "/search", "/offers", "/cart", "/help"] + [f"/products/{number}" for number in range(1, 101)]

_QUERIES = ["lamp", "desk", "chair", "shelf", "rug", "sofa", "table", "mirror", "plant", "clock"]
_TARGETS = ["add-to-cart", "buy", "details", "next", "share"]
_STRETCH = 24
_VISIT_TURNS = np.array([1, 2, 3, 4, 6, 8, 12, 24], dtype=np.int64)
_TURN_S = 15.0
_HOURS_BETWEEN_VISITS = 4


def _rows(seed: int, clock: Clock, first: int, count: int) -> Any:
    dice = Dice(seed, "activity")
    row = np.arange(first, first + count, dtype=np.int64)
    arrived = np.asarray(clock.at(row), dtype=np.int64)
    user = _visitors(dice, clock, row)
    kind = dice.pick([0.7, 0.12, 0.18], "event", row)  # view, search, click
    page = np.where(kind == 1, 1, dice.pick(falling(len(PAGES), 0.8), "page", row))
    value = joined(
        *('{"time": "', iso_moments(arrived - _delays(dice, row)), '", "user": "', user, '", "event": "'),
        *(words_of(["view", "search", "click"], kind), '", "page": "', words_of(PAGES, page), '"'),
        *(_extra(dice, row, kind), "}"),
    )
    return table(user, value, arrived)


def _visitors(dice: Dice, clock: Clock, row: Any) -> Any:
    slots = max(1, round(clock.rate * _TURN_S))
    slot, turn = row % slots, row // slots
    stretch = (turn // _STRETCH) * slots + slot
    length = _VISIT_TURNS[dice.below(len(_VISIT_TURNS), "length", stretch)]
    visit = stretch * _STRETCH + turn % _STRETCH // length
    # As many visitors as make the time between two visits of one of them hours.
    visitors = max(50, int(clock.rate * 3600 * _HOURS_BETWEEN_VISITS / 5))
    number = dice.below(visitors, "visitor", visit)
    return joined("u", pc.utf8_lpad(pa.array(number).cast(pa.string()), 7, "0"))


def _delays(dice: Dice, row: Any) -> Any:
    """Milliseconds between what happened and the record of it."""
    lot, much = dice.chance("delay", row), dice.chance("how long", row)
    usual, late, very_late = 50 + 1950 * much, 10_000 + 230_000 * much, 3_600_000 * (1 + 2 * much)
    return np.where(lot < 0.979, usual, np.where(lot < 0.999, late, very_late)).astype(np.int64)


def _extra(dice: Dice, row: Any, kind: Any) -> Any:
    """The query of a search, the target of a click, nothing for a view."""
    query = joined(', "query": "', words_of(_QUERIES, dice.pick(falling(10), "query", row)), '"')
    target = joined(', "target": "', words_of(_TARGETS, dice.pick([4, 1, 5, 3, 1], "target", row)), '"')
    return pc.if_else(pa.array(kind == 1), query, pc.if_else(pa.array(kind == 2), target, pa.scalar("")))


STREAM = Stream("activity", "activity", "page views, searches and clicks of a shop's visitors", 200.0, _rows)
