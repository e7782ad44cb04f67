"""Judges what a log's clients lived through: writers say what they sent and were told, readers what they saw.

    history = History()
    orders = TopicPartition("orders", 0)
    history.sent("writer", orders, b"1")
    history.acknowledged(b"1", offset=0)
    history.seen("reader", orders, 0, b"1")
    history.rests(orders, start=0, records=[(0, b"1", None)])
    assert not (verdict := history.verdict()).findings, verdict

Owns the notes, which may be taken from several threads: each is one append. Called by the fault tests, the soak and
tests of others. PURE. Values are unique, so that each record is known again. No broker is asked: a verdict follows from
the notes alone, and finding nothing means that every promise below held for every note.
"""

import enum
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from barnabas.types import TopicPartition

UNTOLD = -1
EXAMPLES = 5


class Broken(enum.Enum):
    """The promise that was broken."""

    LOST = "acknowledged and not in the log"
    MOVED = "acknowledged at another offset than where it lies"
    DOUBLED = "stored more than once"
    REORDERED = "stored in another order than its writer sent it"
    BACKDATED = "stored before a record that was acknowledged before it was sent"
    CHANGED = "read differently at one offset"
    GONE = "read and later not there"
    BACKWARDS = "read at an offset that is not above the last one"
    SKIPPED = "passed over by a reader"
    REFUSED = "stored though its writer was told that it is not"
    STRANGE = "stored and never sent there"
    EPOCH_FELL = "stored under an older epoch than what lies before it"


class Finding(NamedTuple):
    broken: Broken
    place: TopicPartition
    offset: int
    value: Hashable
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.place} at {self.offset}: {self.value!r} {self.broken.value}{detail}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a history: nothing, if there are no findings."""

    findings: tuple[Finding, ...]
    counts: str

    def __str__(self) -> str:
        lines = [self.counts]
        for broken, number in Counter(each.broken for each in self.findings).items():
            lines.append(f"{number} {broken.name}: {broken.value}")
            lines += [f"  {each}" for each in self.findings if each.broken is broken][:EXAMPLES]
        return "\n".join(lines if self.findings else [*lines, "Nothing is wrong."])


class _Sent(NamedTuple):
    writer: str
    place: TopicPartition
    value: Hashable


class _Told(NamedTuple):
    value: Hashable
    is_stored: bool | None
    """None: in doubt."""
    offset: int


class _Seen(NamedTuple):
    reader: str
    place: TopicPartition
    offset: int
    value: Hashable
    epoch: int | None


class _Placed(NamedTuple):
    reader: str
    place: TopicPartition
    offset: int


Note = _Sent | _Told | _Seen | _Placed
StoredRecord = tuple[int, Hashable, int | None]
"""Offset, value, leader epoch where it is known."""


@dataclass(frozen=True, slots=True)
class _Log:
    """A partition when all is over."""

    start: int
    records: list[StoredRecord]

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _, _ in self.records]


class History:
    """Mutable: notes in the order in which they were taken."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._logs: dict[TopicPartition, _Log] = {}

    # A writer's notes

    def sent(self, writer: str, place: TopicPartition, value: Hashable) -> None:
        """A writer is about to send a record: note it before, in the order of the sends."""
        self._notes.append(_Sent(writer, place, value))

    def acknowledged(self, value: Hashable, offset: int = UNTOLD) -> None:
        """The record is stored: there, or somewhere where the writer was not told the offset."""
        self._notes.append(_Told(value, True, offset))

    def failed(self, value: Hashable) -> None:
        """The writer was told that the record is not stored, and will not be."""
        self._notes.append(_Told(value, False, UNTOLD))

    def in_doubt(self, value: Hashable) -> None:
        """The writer was told nothing, or that the record may be stored."""
        self._notes.append(_Told(value, None, UNTOLD))

    # A reader's notes

    def placed(self, reader: str, place: TopicPartition, offset: int) -> None:
        """A reader begins, or goes on after a seek: the next record that it sees is the first at or after this."""
        self._notes.append(_Placed(reader, place, offset))

    def seen(
        self, reader: str, place: TopicPartition, offset: int, value: Hashable, epoch: int | None = None
    ) -> None:
        self._notes.append(_Seen(reader, place, offset, value, epoch))

    # The end

    def rests(self, place: TopicPartition, start: int, records: Iterable[StoredRecord]) -> None:
        """The whole partition as it is when all is over, from its first offset on."""
        self._logs[place] = _Log(start, sorted(records, key=lambda record: record[0]))

    def verdict(self, *, idempotent: bool = True) -> Verdict:
        """Judge all notes. Without idempotent writers a record may be stored twice, and out of order."""
        facts = _Facts.of(self._notes, self._logs)
        findings = [
            *_lost(facts),
            *_strange(facts),
            *_changed(facts),
            *_badly_read(facts),
            *_epochs(facts),
        ]
        if idempotent:
            findings += [*_doubled(facts), *_reordered(facts), *_backdated(facts)]
        return Verdict(tuple(findings), facts.counts())


class _Times(NamedTuple):
    """When a record was sent and acknowledged, in notes."""

    sent: int
    acknowledged: float


_NOT_YET = float("inf")


@dataclass(slots=True)
class _Facts:
    """The notes, by what they are about."""

    logs: dict[TopicPartition, _Log]
    sent: dict[Hashable, _Sent] = field(default_factory=dict)
    times: dict[Hashable, _Times] = field(default_factory=dict)
    told: dict[Hashable, _Told] = field(default_factory=dict)
    reads: dict[tuple[str, TopicPartition], list[_Seen | _Placed]] = field(
        default_factory=lambda: defaultdict(list)
    )
    stored: dict[TopicPartition, dict[int, Hashable]] = field(default_factory=dict)

    @classmethod
    def of(cls, notes: Iterable[Note], logs: dict[TopicPartition, _Log]) -> "_Facts":
        facts = cls(logs)
        for order, note in enumerate(list(notes)):
            match note:
                case _Sent():
                    facts.sent[note.value] = note
                    facts.times[note.value] = _Times(order, _NOT_YET)
                case _Told():
                    facts.told[note.value] = note
                    if note.is_stored and note.value in facts.times:
                        facts.times[note.value] = facts.times[note.value]._replace(acknowledged=order)
                case _Seen() | _Placed():
                    facts.reads[note.reader, note.place].append(note)
        for place, log in logs.items():
            facts.stored[place] = {offset: value for offset, value, _ in log.records}
        return facts

    def acknowledged(self) -> Iterator[tuple[_Sent, int]]:
        for value, told in self.told.items():
            if told.is_stored and value in self.sent:
                yield self.sent[value], told.offset

    def counts(self) -> str:
        outcomes = Counter(told.is_stored for told in self.told.values())
        seen = sum(isinstance(note, _Seen) for notes in self.reads.values() for note in notes)
        silent = len(self.sent) - len(self.told.keys() & self.sent.keys())
        return (
            f"{len(self.sent):,} records sent: {outcomes[True]:,} acknowledged, {outcomes[False]:,} refused, "
            f"{outcomes[None] + silent:,} in doubt. {seen:,} reads by {len({r for r, _ in self.reads})} readers. "
            f"{sum(len(log.records) for log in self.logs.values()):,} records in {len(self.logs)} partitions at rest."
        )


def _lost(facts: _Facts) -> Iterator[Finding]:
    """What was acknowledged is there, at the offset that its writer was told."""
    where = {
        (place, value): offset
        for place, stored in facts.stored.items()
        for offset, value in reversed(stored.items())
    }
    for sent, offset in facts.acknowledged():
        log = facts.logs.get(sent.place)
        if log is None or UNTOLD < offset < log.start:
            continue
        found = where.get((sent.place, sent.value))
        if found is None:
            ends = f"the log ends before {log.offsets[-1] + 1}" if log.records else "the log is empty"
            yield Finding(Broken.LOST, sent.place, offset, sent.value, ends)
        elif offset != UNTOLD and facts.stored[sent.place].get(offset) != sent.value:
            yield Finding(Broken.MOVED, sent.place, offset, sent.value, f"it lies at {found}")


def _strange(facts: _Facts) -> Iterator[Finding]:
    """What lies in a partition was sent there, and not refused."""
    for place, stored in facts.stored.items():
        for offset, value in stored.items():
            sent, told = facts.sent.get(value), facts.told.get(value)
            if sent is None or sent.place != place:
                yield Finding(Broken.STRANGE, place, offset, value)
            elif told is not None and told.is_stored is False:
                yield Finding(Broken.REFUSED, place, offset, value)


def _doubled(facts: _Facts) -> Iterator[Finding]:
    for place, log in facts.logs.items():
        first: dict[Hashable, int] = {}
        for offset, value, _ in log.records:
            if first.setdefault(value, offset) != offset:
                yield Finding(Broken.DOUBLED, place, offset, value, f"it lies at {first[value]} too")


def _reordered(facts: _Facts) -> Iterator[Finding]:
    """The records of a writer lie in a partition in the order in which it sent them."""
    for place, log in facts.logs.items():
        last: dict[str, tuple[int, int, Hashable]] = {}
        for offset, value, _ in log.records:
            sent = facts.sent.get(value)
            if sent is None:
                continue
            order = facts.times[value].sent
            before = last.get(sent.writer)
            if before is not None and order < before[0]:
                detail = f"after {before[2]!r} at {before[1]}, which {sent.writer} sent later"
                yield Finding(Broken.REORDERED, place, offset, value, detail)
            else:
                last[sent.writer] = (order, offset, value)


def _backdated(facts: _Facts) -> Iterator[Finding]:
    """A record that was sent after another one's acknowledgement lies behind it, whatever their writers."""
    for place, log in facts.logs.items():
        earliest, witness = _NOT_YET, (0, None)  # type: tuple[float, tuple[int, Hashable]]
        for offset, value, _ in reversed(log.records):
            times = facts.times.get(value)
            if times is None:
                continue
            if times.sent > earliest:
                detail = f"sent after {witness[1]!r}, which lies at {witness[0]}, was acknowledged"
                yield Finding(Broken.BACKDATED, place, offset, value, detail)
            if times.acknowledged < earliest:
                earliest, witness = times.acknowledged, (offset, value)


def _changed(facts: _Facts) -> Iterator[Finding]:
    """All readers see the same at an offset, and it stays there."""
    first: dict[tuple[TopicPartition, int], tuple[Hashable, str]] = {}
    for (reader, place), notes in facts.reads.items():
        log = facts.logs.get(place)
        for note in notes:
            if not isinstance(note, _Seen):
                continue
            value, other = first.setdefault((place, note.offset), (note.value, reader))
            if value != note.value:
                detail = f"{other} read {value!r}, {reader} another"
                yield Finding(Broken.CHANGED, place, note.offset, note.value, detail)
            if log is None or note.offset < log.start:
                continue
            stored = facts.stored[place]
            if note.offset not in stored:
                yield Finding(Broken.GONE, place, note.offset, note.value, f"{reader} read it")
            elif stored[note.offset] != note.value:
                detail = f"{reader} read it; {stored[note.offset]!r} lies there"
                yield Finding(Broken.CHANGED, place, note.offset, note.value, detail)


def _badly_read(facts: _Facts) -> Iterator[Finding]:
    """A reader sees each record from its position on once and in order."""
    for (reader, place), notes in facts.reads.items():
        offsets = facts.logs[place].offsets if place in facts.logs else []
        wanted: int | None = None
        for note in notes:
            if isinstance(note, _Placed):
                wanted = note.offset
                continue
            if wanted is not None and note.offset < wanted:
                detail = f"{reader} had read up to {wanted}"
                yield Finding(Broken.BACKWARDS, place, note.offset, note.value, detail)
            if wanted is not None:
                for missed in offsets[bisect_left(offsets, wanted) : bisect_left(offsets, note.offset)]:
                    value = facts.stored[place][missed]
                    detail = f"{reader} went on at {note.offset}"
                    yield Finding(Broken.SKIPPED, place, missed, value, detail)
            wanted = note.offset + 1


def _epochs(facts: _Facts) -> Iterator[Finding]:
    """Leader epochs do not fall with the offset, and all readers are told the same one."""
    known: dict[TopicPartition, dict[int, tuple[int, Hashable]]] = defaultdict(dict)
    for place, log in facts.logs.items():
        known[place] = {offset: (epoch, value) for offset, value, epoch in log.records if epoch is not None}
    for (reader, place), notes in facts.reads.items():
        for note in notes:
            if isinstance(note, _Seen) and note.epoch is not None:
                epoch, value = known[place].setdefault(note.offset, (note.epoch, note.value))
                if epoch != note.epoch and value == note.value:
                    detail = f"{reader} was told epoch {note.epoch}, others {epoch}"
                    yield Finding(Broken.CHANGED, place, note.offset, note.value, detail)
    for place, epochs in known.items():
        for before, after in pairwise(sorted(epochs.items())):
            if after[1][0] < before[1][0]:
                detail = f"{after[1][0]} after {before[1][0]}"
                yield Finding(Broken.EPOCH_FELL, place, after[0], after[1][1], detail)
