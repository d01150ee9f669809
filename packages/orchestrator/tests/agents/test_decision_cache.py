"""What was decided lately (C10): for whom, for how long, and how much of it is kept."""

from remit_orchestrator.decision_cache import DecisionCache
from remit_testing import ManualClock

NO = "I cannot do that."


def test_words_are_equal_whatever_their_case_and_spaces() -> None:
    decisions = DecisionCache(ManualClock().now, keep_ms=1_000)
    key = decisions.key("u", "Größe  ändern\n", ["B", "A"])
    assert decisions.key("u", " GRÖSSE a\u0308ndern", ["A", "B"]) == key
    others = [("v", "größe ändern", ["A", "B"]), ("u", "größe", ["A", "B"]), ("u", "größe ändern", ["A"])]
    assert key not in {decisions.key(*each) for each in others}


def test_a_line_break_is_no_space() -> None:
    """Each line of a list asks for something: "cancel\\nbook" is another request than "cancel book"."""
    decisions = DecisionCache(ManualClock().now, keep_ms=1_000)
    assert decisions.key("u", "cancel it\nbook it", []) != decisions.key("u", "cancel it book it", [])
    assert decisions.key("u", "cancel it\r\n\n  book it", []) == decisions.key("u", "cancel it\nbook it", [])


def test_a_key_tells_nothing_of_the_words_and_is_another_in_each_hub() -> None:
    one, other = (DecisionCache(ManualClock().now, keep_ms=1_000).key("u", "secret", []) for _ in range(2))
    assert one != other
    assert len(one) == 16


def test_a_decision_counts_until_its_time_is_over() -> None:
    clock = ManualClock()
    decisions = DecisionCache(clock.now, keep_ms=1_000)
    key = decisions.key("u", "x", [])
    assert decisions.get(key) is None
    decisions.put(key, NO)
    clock.advance(0.9)
    assert decisions.get(key) is NO
    clock.advance(0.2)
    assert decisions.get(key) is None


def test_the_oldest_use_is_forgotten_first() -> None:
    decisions = DecisionCache(ManualClock().now, keep_ms=1_000, most=2)
    one, two, three = (decisions.key("u", text, []) for text in ("1", "2", "3"))
    decisions.put(one, NO)
    decisions.put(two, NO)
    decisions.get(one)
    decisions.put(three, NO)
    assert [decisions.get(key) for key in (one, two, three)] == [NO, None, NO]


def test_what_was_being_decided_while_the_offers_changed_is_not_found_again() -> None:
    decisions = DecisionCache(ManualClock().now, keep_ms=1_000)
    before = decisions.key("u", "x", ["A"])
    decisions.clear()
    decisions.put(before, NO)
    assert decisions.get(decisions.key("u", "x", ["A"])) is None


def test_nothing_is_kept_for_no_time() -> None:
    decisions = DecisionCache(ManualClock().now, keep_ms=0)
    key = decisions.key("u", "x", [])
    decisions.put(key, NO)
    assert decisions.get(key) is None
