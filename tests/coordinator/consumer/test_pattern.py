"""Regular expressions over topic names: the same answers as Python's `re`, in linear time, and RE2's limits."""

import random
import re
import time

import pytest

from barnabas.coordinator.consumer.pattern import MAX_LENGTH, Pattern, pattern
from barnabas.errors import Code, Refused


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("orders", ["orders"], ["orders-eu", "my-orders", ""]),
        ("orders.*", ["orders", "orders-eu"], ["order"]),
        (r"orders\..+", ["orders.eu"], ["orders-eu", "orders."]),
        ("^a|b$", ["a", "b"], ["ab"]),
        ("[a-c]{2,3}", ["ab", "abc"], ["a", "abcd", "ad"]),
        ("[^a-c]+", ["xyz", "d.9"], ["xa", ""]),
        (r"\w+-\d{4}", ["log-2024"], ["log-204", "-2024"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("(?i:O)rders", ["orders", "Orders"], ["ORDERS"]),
        ("(?P<zone>eu|us)-(?:a|b)*?", ["eu-", "us-abba"], ["xx-a"]),
        ("(?<zone>eu)", ["eu"], ["us"]),
        ("[[:alpha:]_]+", ["ab_c"], ["a1"]),
        ("[[:^digit:]]+", ["abc"], ["a1"]),
        (r"\Qa.b\E.", ["a.bc"], ["axbc"]),
        (r"a\x2eb\x{2d}", ["a.b-"], ["axb-"]),
        ("[]a-]+", ["]a-"], ["b"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("x*", ["", "xxx"], ["y"]),
        ("()", [""], ["x"]),
        (r"\bfoo\b.*", ["foo", "foo-bar"], ["foobar"]),
        (r"foo\B.*", ["foobar"], ["foo-bar"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        ("é|a", ["a"], ["b"]),
    ],
)
def test_a_pattern_matches_whole_names(text: str, matching: list[str], others: list[str]) -> None:
    found = Pattern(text)
    assert [name for name in matching + others if found.matches(name)] == matching


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[z-a]",
        r"[\d-z]",
        "*a",
        "a|*",
        "a**",
        "a+*",
        "a{2}{3}",
        "a{1001}",
        "a{3,2}",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(?>a)",
        "(?P=name)",
        "(?P<1>a)",
        r"(a)\1",
        r"\p{Greek}",
        r"\xzz",
        r"\x{110000}",
        "[[:nope:]]",
        "\\",
        "(" * 200 + ")" * 200,
        "a" * (MAX_LENGTH + 1),
        "(a{100}){100}",
        "((((){1000}){1000}){1000}){1000}",
        "(?",
        "(?i",
        "[[:alpha:",
    ],
)
def test_what_re2_does_not_know_or_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        Pattern(text)
    assert refused.value.code is Code.INVALID_REGULAR_EXPRESSION


def test_a_pattern_is_made_once() -> None:
    assert pattern("a.*b") is pattern("a.*b")


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 4 or kind < 0.35:
        return rng.choice(["a", "b", "c", ".", r"\.", "[ab]", "[^a]", r"\w", "[a-c]", r"\d", "-", "_"])
    if kind < 0.6:
        return random_pattern(rng, depth + 1) + random_pattern(rng, depth + 1)
    if kind < 0.75:
        return f"({random_pattern(rng, depth + 1)}|{random_pattern(rng, depth + 1)})"
    if kind < 0.95:
        repeat = rng.choice(["*", "+", "?", "{1,2}", "{2}", "{0,3}?", "*?", "{2,}"])
        return f"(?:{random_pattern(rng, depth + 1)}){repeat}"
    return rng.choice(["^", "$", r"\b", r"\B"]) + random_pattern(rng, depth + 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_pattern_means_what_it_means_to_python(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        text = random_pattern(rng)
        ours, theirs = Pattern(text), re.compile(text, re.ASCII)
        for _ in range(8):
            name = "".join(rng.choice("abc.-_1") for _ in range(rng.randrange(1, 7)))
            assert ours.matches(name) == bool(theirs.fullmatch(name)), (text, name)


@pytest.mark.parametrize("text", ["(a+)+", "(a|aa)+b", "(a*)*b", "(.*a){20}", "(a|b)*a(a|b){12}"])
def test_no_pattern_takes_long(text: str) -> None:
    """Each of these would keep Python's `re` busy for longer than this machine will exist."""
    found = Pattern(text)
    start = time.process_time()
    for tail in ("b", "c", ""):
        found.matches("a" * 248 + tail)
    assert time.process_time() - start < 1
