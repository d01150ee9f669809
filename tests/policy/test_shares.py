"""Shares: turns in a queue, and amounts of a bounded total, by client and by user."""

from hypothesis import given
from hypothesis import strategies as st

from remit.policy.shares import HEAD_START, FairQueue, SharedTotal, ShareOwner, order_of_turn
from remit.protocol.remit import Priority

FLOOD, OTHER, STRANGER = ShareOwner("web", "flood"), ShareOwner("web", "anna"), ShareOwner("app", "ben")


def flooded(count: int = 1_000) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for number in range(count):
        queue.put(FLOOD, f"flood {number}")
    return queue


def all_of(queue: FairQueue[str]) -> list[str]:
    return [item for _ in range(len(queue)) if (item := queue.take()) is not None]


def test_beside_a_flood_of_one_user_every_other_waits_at_most_three_turns() -> None:
    queue = flooded()
    queue.put(OTHER, "anna")
    queue.put(STRANGER, "ben")
    order = all_of(queue)
    assert (order.index("anna") <= 3, order.index("ben") <= 3) == (True, True)
    assert [each for each in order if each.startswith("flood")] == [f"flood {number}" for number in range(1_000)]


def test_a_client_gains_nothing_by_naming_many_users() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.put(ShareOwner("web", f"user {number}"), f"web {number}")
    for number in range(3):
        queue.put(STRANGER, f"ben {number}")
    assert all_of(queue)[:6] == ["web 0", "ben 0", "web 1", "ben 1", "web 2", "ben 2"]


def test_an_empty_queue_gives_nothing() -> None:
    assert FairQueue[str]().take() is None


def test_the_urgent_come_first_and_the_others_are_not_overtaken_for_ever() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(1_000):
        queue.put(FLOOD, f"urgent {number}", Priority.HIGH)
    queue.put(FLOOD, "normal")
    queue.put(FLOOD, "low", Priority.LOW)
    order = all_of(queue)
    assert order.index("normal") < HEAD_START[Priority.NORMAL]
    assert order.index("low") < HEAD_START[Priority.LOW]
    assert order[:2] == ["urgent 0", "urgent 1"]


def test_each_priority_comes_first_now_and_then() -> None:
    first = [order_of_turn(turn)[0] for turn in range(1, HEAD_START[Priority.LOW] + 1)]
    assert {each: first.count(each) for each in Priority} == {Priority.HIGH: 396, Priority.NORMAL: 3, Priority.LOW: 1}


def test_what_no_longer_waits_is_removed_once() -> None:
    queue = flooded(2)
    assert queue.remove(FLOOD, "flood 0")
    assert not queue.remove(FLOOD, "flood 0")
    assert not queue.remove(OTHER, "anna")
    assert not queue.remove(STRANGER, "ben", Priority.HIGH)
    assert all_of(queue) == ["flood 1"]


def test_a_full_queue_drops_the_last_of_whoever_has_most() -> None:
    queue = flooded(3)
    assert queue.make_room(OTHER) == "flood 2"
    queue.put(OTHER, "anna")
    assert queue.make_room(STRANGER) == "flood 1"
    queue.put(STRANGER, "ben")
    assert queue.make_room(FLOOD) is None, "at a tie the new one has to go"
    assert all_of(queue) == ["flood 0", "ben", "anna"]


def test_a_full_queue_drops_the_least_urgent_first() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put(FLOOD, "low", Priority.LOW)
    queue.put(FLOOD, "urgent", Priority.HIGH)
    assert queue.make_room(STRANGER) == "low"


shares = st.builds(ShareOwner, st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]))


@given(st.lists(st.tuples(shares, st.sampled_from(list(Priority)))))
def test_everything_put_in_comes_out_once_and_in_the_order_of_its_user(puts: list[tuple[ShareOwner, Priority]]) -> None:
    queue: FairQueue[tuple[int, ShareOwner, Priority]] = FairQueue()
    for number, (share, priority) in enumerate(puts):
        queue.put(share, (number, share, priority), priority)
    taken = [item for _ in puts if (item := queue.take()) is not None]
    assert (len(queue), sorted(taken)) == (0, [(number, *put) for number, put in enumerate(puts)])
    for put in puts:
        mine = [number for number, *rest in taken if tuple(rest) == put]
        assert mine == sorted(mine)


def taken(total: SharedTotal, share: ShareOwner) -> int:
    count = 0
    while total.has_room(share):
        total.take(share)
        count += 1
    return count


def test_one_user_cannot_take_everything_and_neither_can_one_client() -> None:
    total = SharedTotal(900)
    assert taken(total, FLOOD) == 600
    assert taken(total, OTHER) > 100
    for number in range(100):
        taken(total, ShareOwner("web", f"user {number}"))
    assert total.held == 800
    assert taken(total, STRANGER) > 50
    assert total.held < 900


def test_a_share_without_a_user_counts_for_its_client_alone() -> None:
    total = SharedTotal(9)
    assert taken(total, ShareOwner("web")) == 8
    assert not total.has_room(ShareOwner("web"))
    assert total.has_room(ShareOwner("app"))


def test_what_is_given_back_can_be_taken_again() -> None:
    total = SharedTotal(3)
    total.take(FLOOD, 2)
    total.give_back(FLOOD)
    assert (total.held, total.has_room(FLOOD)) == (1, True)
    total.give_back(FLOOD)
    assert (total.held, taken(total, FLOOD)) == (0, 2)
