"""Shares: turns in a queue, and amounts of a bounded total, by client and by user."""

from hypothesis import given
from hypothesis import strategies as st

from remit.policy.shares import HEAD_START, FairQueue, SharedTotal, ShareOwner, ThreadQueue, order_of_turn
from remit.protocol.remit import Priority

FLOOD, OTHER, STRANGER = ShareOwner("web", "flood"), ShareOwner("web", "anna"), ShareOwner("app", "ben")


def flooded(count: int = 1_000) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for number in range(count):
        queue.put(FLOOD, f"flood {number}")
    return queue


def all_of(queue: FairQueue[str]) -> list[str]:
    return [item for _ in range(queue.size) if (item := queue.take()) is not None]


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
    assert (queue.size, sorted(taken)) == (0, [(number, *put) for number, put in enumerate(puts)])
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


# ── one worker ────────────────────────────────────────────────────────────────────────────────────────────────────────

LOOK, DECODE = 300.0, 1.0
UNKNOWN = ShareOwner("web")


def worked(queue: ThreadQueue[float]) -> tuple[ShareOwner, float]:
    share, took = queue.take()
    queue.charge(share, took)
    return share, took


def test_whoever_has_used_a_worker_least_is_next() -> None:
    queue: ThreadQueue[float] = ThreadQueue()
    for _ in range(3):
        queue.put(FLOOD, LOOK)
    for _ in range(5):
        queue.put(UNKNOWN, DECODE)
    queue.put(STRANGER, LOOK)
    order = [worked(queue) for _ in range(9)]
    assert order == [
        (FLOOD, LOOK),
        (STRANGER, LOOK),
        *[(UNKNOWN, DECODE)] * 5,  # all together took less than one body of the flood
        *[(FLOOD, LOOK)] * 2,
    ]


def test_whoever_comes_while_a_worker_is_busy_for_a_user_is_before_more_of_that_user() -> None:
    queue: ThreadQueue[float] = ThreadQueue()
    for _ in range(10):
        queue.put(FLOOD, LOOK)
    for _ in range(5):
        worked(queue)
    share, took = queue.take()
    queue.put(OTHER, LOOK)
    queue.charge(share, took)
    assert [worked(queue)[0] for _ in range(3)] == [OTHER, FLOOD, FLOOD]


@given(st.integers(min_value=1, max_value=8))
def test_ever_new_users_do_not_keep_a_worker_from_one_who_has_used_it(at_once: int) -> None:
    queue: ThreadQueue[float] = ThreadQueue()
    queue.put(FLOOD, LOOK)
    queue.put(FLOOD, LOOK)
    assert worked(queue) == (FLOOD, LOOK)
    for number in range(at_once):
        queue.put(ShareOwner("web", f"first {number}"), LOOK)
    order: list[ShareOwner] = []
    while FLOOD not in order:
        queue.put(ShareOwner("web", f"user {len(order)}"), LOOK)
        order.append(worked(queue)[0])
    assert len(order) <= 2 * at_once + 4


@given(st.lists(st.tuples(st.sampled_from([FLOOD, OTHER, STRANGER, UNKNOWN]), st.floats(0.0, 100.0)), max_size=50))
def test_a_work_queue_gives_back_everything_and_keeps_the_order_of_each_user(
    items: list[tuple[ShareOwner, float]],
) -> None:
    queue: ThreadQueue[float] = ThreadQueue()
    for share, took in items:
        queue.put(share, took)
    order = [worked(queue) for _ in items]
    for share in (FLOOD, OTHER, STRANGER, UNKNOWN):
        assert [each for each in order if each[0] == share] == [each for each in items if each[0] == share]
