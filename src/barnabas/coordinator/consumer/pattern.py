"""Regular expressions over topic names, in RE2's language, matched in time linear in the name.

Used for `subscribed_topic_regex` of KIP-848. Members send them, and one event loop evaluates them for all groups:
Python's `re` backtracks, and `(a+)+$` would stop the broker. So a pattern becomes an automaton here, whose size is
bounded when it is made, and whose transitions are remembered (2 us a name; with a pattern made to hurt 0.4 ms). As in
RE2 there are no backreferences and no look-around. Topic names are ASCII: a set of characters is a mask of 128 bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from barnabas.errors import Code, Refused

MAX_LENGTH = 1_000
MAX_STATES = 1_000
MAX_REPEAT = 1_000
MAX_DEPTH = 100
MAX_REMEMBERED = 20_000
"""Transitions kept; past that they are forgotten and found anew."""

Mask: TypeAlias = int
EVERY: Mask = (1 << 128) - 1


def _mask(characters: Iterable[str]) -> Mask:
    mask = 0
    for character in characters:
        if ord(character) < 128:
            mask |= 1 << ord(character)
    return mask


def _span(first: str, last: str) -> Mask:
    return _mask(map(chr, range(min(ord(first), 128), min(ord(last), 127) + 1)))


DIGIT = _span("0", "9")
LOWER = _span("a", "z")
UPPER = _span("A", "Z")
WORD = DIGIT | LOWER | UPPER | _mask("_")
SPACE = _mask("\t\n\f\r ")

_CLASSES = {
    "d": DIGIT,
    "D": EVERY & ~DIGIT,
    "w": WORD,
    "W": EVERY & ~WORD,
    "s": SPACE,
    "S": EVERY & ~SPACE,
}
_POSIX = {
    "alnum": DIGIT | LOWER | UPPER,
    "alpha": LOWER | UPPER,
    "ascii": EVERY,
    "blank": _mask("\t "),
    "cntrl": _span("\0", "\x1f") | _mask("\x7f"),
    "digit": DIGIT,
    "graph": _span("!", "~"),
    "lower": LOWER,
    "print": _span(" ", "~"),
    "punct": _span("!", "/") | _span(":", "@") | _span("[", "`") | _span("{", "~"),
    "space": SPACE | _mask("\v"),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGIT | _span("a", "f") | _span("A", "F"),
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = "bBAz"


@dataclass(frozen=True, slots=True)
class _Set:
    mask: Mask


@dataclass(frozen=True, slots=True)
class _At:
    """Holds between two characters: `A` begin, `z` end, `b` and `B` the edge of a word or not."""

    kind: str


@dataclass(frozen=True, slots=True)
class _Sequence:
    nodes: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    nodes: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    node: "_Node"
    least: int
    most: int | None


_Node: TypeAlias = _Set | _At | _Sequence | _Choice | _Repeat


def _invalid(text: str, why: str) -> Refused:
    return Refused(
        Code.INVALID_REGULAR_EXPRESSION, f"{text[:100]!r} is not a regular expression of RE2: {why}."
    )


class _Parser:
    """From text to nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._fold = False
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._bad("a ')' without its '('")
        return node

    def _bad(self, why: str) -> Refused:
        return _invalid(self._text, why)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _next(self) -> str:
        if self._at == len(self._text):
            raise self._bad("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise self._bad(f"{end!r} is missing")
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    def _choice(self) -> _Node:
        nodes = [self._sequence()]
        while self._take("|"):
            nodes.append(self._sequence())
        return nodes[0] if len(nodes) == 1 else _Choice(tuple(nodes))

    def _sequence(self) -> _Node:
        nodes: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            nodes.append(self._repeated(self._atom()))
        return nodes[0] if len(nodes) == 1 else _Sequence(tuple(nodes))

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._take("?")  # Lazy or greedy makes no difference to whether a whole name matches.
        if self._bounds() is not None:
            raise self._bad("one repetition follows another")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if self._peek() != "{":
            return None
        stop = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(stop, self._at + 1)].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            return None  # As in RE2, a brace that counts nothing is a brace.
        self._at = stop + 1
        low = int(least)
        high = int(most) if most else None if comma else low
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            raise self._bad(f"the repetition {{{least}{comma}{most}}} is out of bounds")
        return low, high

    def _atom(self) -> _Node:
        match character := self._next():
            case "(":
                return self._group()
            case "[":
                return _Set(self._class())
            case ".":
                return _Set(EVERY)
            case "^":
                return _At("A")
            case "$":
                return _At("z")
            case "*" | "+" | "?":
                raise self._bad(f"there is nothing that {character!r} could repeat")
            case "\\":
                return self._escaped()
        return _Set(self._folded(_mask(character)))

    def _escaped(self) -> _Node:
        if self._peek() in _ASSERTIONS and self._peek():
            return _At(self._next())
        if self._take("Q"):
            stop = self._text.find("\\E", self._at)
            literal = self._text[self._at : stop] if stop >= 0 else self._text[self._at :]
            self._at = stop + 2 if stop >= 0 else len(self._text)
            return _Sequence(tuple(_Set(self._folded(_mask(c))) for c in literal))
        return _Set(self._folded(self._escape()))

    def _escape(self) -> Mask:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROL:
            return _mask(_CONTROL[character])
        if character == "x":
            digits = self._until("}") if self._take("{") else self._next() + self._next()
            try:
                return _mask(chr(int(digits, 16)))
            except (ValueError, OverflowError):
                raise self._bad(f"\\x{digits} is no character") from None
        if character.isascii() and character.isalnum():
            raise self._bad(f"\\{character} is not known (there are no backreferences)")
        return _mask(character)

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._bad(f"groups are nested more than {MAX_DEPTH} deep")
        outer = self._fold
        if self._take("?"):
            if self._take("P<") or self._peek() == "<":
                self._take("<")
                if not self._until(">").isidentifier():
                    raise self._bad("the name of a group is not a word (there is no look-behind)")
            elif not self._flags():
                self._depth -= 1
                return _Sequence(())  # (?i) holds to the end of the group it stands in.
        node = self._choice()
        if not self._take(")"):
            raise self._bad("a '(' without its ')'")
        self._fold = outer
        self._depth -= 1
        return node

    def _flags(self) -> bool:
        """Read `i:` or `i)`; whether a group follows."""
        value = True
        while (flag := self._next()) not in (":", ")"):
            if flag == "i":
                self._fold = value
            elif flag == "-":
                value = False
            elif flag not in "msU":  # These change nothing where a line is all there is.
                raise self._bad(f"(?{flag} is not known (there is no look-around)")
        return flag == ":"

    def _class(self) -> Mask:
        negated = self._take("^")
        mask = 0
        first = True
        while first or self._peek() != "]":
            first = False
            mask |= self._class_item()
        self._at += 1
        mask = self._folded(mask)
        return EVERY & ~mask if negated else mask

    def _class_item(self) -> Mask:
        if self._take("[:"):
            name = self._until(":]")
            mask = _POSIX.get(name.removeprefix("^"))
            if mask is None:
                raise self._bad(f"there is no class [:{name}:]")
            return EVERY & ~mask if name.startswith("^") else mask
        start = self._class_character()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return start
        self._at += 1
        end = self._class_character()
        if start.bit_count() != 1 or end.bit_count() != 1 or start > end:
            raise self._bad("a range in a class runs backwards or has no ends")
        return (end << 1) - start

    def _class_character(self) -> Mask:
        character = self._next()
        return self._escape() if character == "\\" else _mask(character)

    def _folded(self, mask: Mask) -> Mask:
        return mask | (mask & UPPER) << 32 | (mask & LOWER) >> 32 if self._fold else mask


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


@dataclass(slots=True)
class _Automaton:
    """States that take a character (`masks`), and states that take none (`free`), as edges to others."""

    text: str
    masks: list[Mask] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    free: list[tuple[int, ...]] = field(default_factory=list)
    assertions: list[str] = field(default_factory=list)
    steps: int = 0

    def state(
        self, *, mask: Mask = 0, after: int = 0, free: tuple[int, ...] = (), assertion: str = ""
    ) -> int:
        if len(self.masks) == MAX_STATES:
            raise _invalid(self.text, f"it needs more than {MAX_STATES} states")
        self.masks.append(mask)
        self.after.append(after)
        self.free.append(free)
        self.assertions.append(assertion)
        return len(self.masks) - 1

    def emit(self, node: _Node, follow: int) -> int:
        """Make the states of a node that lead on to `follow`; where they begin."""
        # Repetitions of nothing make no states, but (((){1000}){1000}){1000} would still take for ever.
        self.steps += 1
        if self.steps > 10 * MAX_STATES:
            raise _invalid(self.text, "its repetitions multiply to too many")
        match node:
            case _Set(mask):
                return self.state(mask=mask, after=follow)
            case _At(kind):
                return self.state(free=(follow,), assertion=kind)
            case _Sequence(nodes):
                for part in reversed(nodes):
                    follow = self.emit(part, follow)
                return follow
            case _Choice(nodes):
                return self.state(free=tuple(self.emit(part, follow) for part in nodes))
            case _Repeat(inner, least, most):
                entry = follow
                if most is None:
                    entry = self.state()
                    self.free[entry] = (self.emit(inner, entry), follow)
                else:
                    for _ in range(most - least):
                        entry = self.state(free=(self.emit(inner, entry), follow))
                for _ in range(least):
                    entry = self.emit(inner, entry)
                return entry


class Pattern:
    """A regular expression that has been found valid."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _invalid(text, f"it has more than {MAX_LENGTH} characters")
        self._automaton = _Automaton(text)
        self._end = self._automaton.state()
        self._start = frozenset((self._automaton.emit(_Parser(text).parse(), self._end),))
        self._known: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name is what the pattern describes."""
        states, before = self._start, ""
        known = self._known
        for character in (*name, ""):
            key = (states, before, character)
            after = known.get(key)
            if after is None:
                if len(known) >= MAX_REMEMBERED:
                    known.clear()
                after = known[key] = self._step(states, before, character)
            if not after:
                return False
            states, before = after, character
        return True

    def _step(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        """The states behind a character; behind the end of the name: the end state, or none."""
        automaton = self._automaton
        reached: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in reached:
                continue
            reached.add(state)
            if _holds(automaton.assertions[state], before, character):
                waiting.extend(automaton.free[state])
        if not character:
            return frozenset((self._end,)) if self._end in reached else frozenset()
        bit = _mask(character)
        return frozenset(automaton.after[state] for state in reached if automaton.masks[state] & bit)


def _holds(assertion: str, before: str, after: str) -> bool:
    match assertion:
        case "A":
            return not before
        case "z":
            return not after
        case "b" | "B":
            edge = bool(_mask(before) & WORD) != bool(_mask(after) & WORD)
            return edge == (assertion == "b")
    return True


@lru_cache(maxsize=256)
def pattern(text: str) -> Pattern:
    """The pattern of this text, or INVALID_REGULAR_EXPRESSION."""
    return Pattern(text)
