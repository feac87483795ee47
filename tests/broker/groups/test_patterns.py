"""Topic patterns: what Python's ``re`` matches, in linear time; and what RE2 refuses."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.groups.patterns import InvalidPattern, TopicPattern

atoms = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "-",
        "_",
        "1",
        "[ab]",
        "[^a]",
        r"\d",
        r"\w",
        "[a-b1]",
        r"\.",
        "^",
        "$",
        "[-a]",
        "[]a]",
        r"[\d_]",
    ]
)
operators = st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}", "*?", "+?"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        inner.map("(?:{})".format),
        inner.map("(?i:{})".format),
        st.tuples(inner, operators).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=8,
)


@settings(max_examples=1000, deadline=None)
@given(patterns, st.lists(st.text("abAB.-_1", max_size=6), max_size=6))
def test_it_matches_what_re_matches(pattern: str, names: list[str]) -> None:
    expected = re.compile(pattern)
    ours = TopicPattern(pattern)
    for name in names:
        assert ours.matches(name) == (expected.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("(?i)orders", ["ORDERS", "oRders"], ["order"]),
        ("[[:alpha:]]+-[[:digit:]]", ["a-1", "Zz-9"], ["a-a", "1-1"]),
        ("[[:^digit:]]+", ["abc"], ["a1"]),
        (r"\Qa.b*\E", ["a.b*"], ["aab", "a.bb"]),
        (r"\x41\x{42}", ["AB"], ["ab"]),
        (r"(?P<name>a)|(?<other>b)", ["a", "b"], ["ab"]),
        (r"\Aab\z", ["ab"], ["aab"]),
        ("a{2}{", ["aa{"], ["aa"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("", [""], ["a"]),
        ("a||b", ["a", "b", ""], ["ab"]),
    ],
)
def test_syntax_of_re2(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in matching + others if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    ["a(", "a)", "*a", "a**", "a+*", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "[a", "[b-a]", "[[:what:]]", "\\",
     "a{3,2}", "a{1001}", "(?P<x", "(?P<1>a)", r"\q", "(a{900}){900}", "((((a{9}){9}){9}){9}){9}", "x" * 1001,
     "(" * 200 + ")" * 200, r"\x{110000}", r"\x", "(?z)"],
)  # fmt: skip
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a+)+b", "(.*.*.*.*.*.*.*x){3}", "(a?){200}a{200}", "(.?){300}x"]
)
def test_patterns_that_stop_a_backtracking_matcher_do_not_stop_this_one(pattern: str) -> None:
    compiled = TopicPattern(pattern)
    begun = time.perf_counter()
    compiled.matches("a" * 249)
    assert time.perf_counter() - begun < 1


def test_a_thousand_names_are_matched_quickly() -> None:
    compiled = TopicPattern("(orders|clicks|payments)[-.][a-z]+([-.][0-9]{1,6})?")
    begun = time.perf_counter()
    matching = [
        name for name in (f"orders.shop-{number}" for number in range(1000)) if compiled.matches(name)
    ]
    assert len(matching) == 1000
    assert time.perf_counter() - begun < 0.5


@given(st.text("ab(|)[]*+?{}1,\\.^$-:", max_size=20))
@settings(max_examples=2000, deadline=None)
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    try:
        TopicPattern(pattern).matches("ab1")
    except InvalidPattern:
        pass
