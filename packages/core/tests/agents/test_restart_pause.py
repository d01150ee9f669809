"""After each failure in a row a program waits longer for its next start."""

from remit.agents.program import RestartPause


class Watch:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_first_start_need_not_wait() -> None:
    assert RestartPause((1.0, 2.0), Watch()).left_s() == 0


def test_each_failure_in_a_row_makes_the_pause_longer_up_to_the_last() -> None:
    pause, pauses = RestartPause((0.0, 1.0, 4.0), Watch()), list[tuple[int, float]]()
    for _ in range(4):
        pause.fail()
        pauses.append((pause.failures, pause.left_s()))
    assert pauses == [(1, 0.0), (2, 1.0), (3, 4.0), (4, 4.0)]


def test_a_pause_ends_with_time() -> None:
    watch = Watch()
    pause = RestartPause((4.0,), watch)
    pause.fail()
    watch.now_s += 3
    assert pause.left_s() == 1
    watch.now_s += 3
    assert pause.left_s() == 0


def test_after_a_success_the_next_failure_is_the_first_again() -> None:
    watch = Watch()
    pause = RestartPause((1.0, 60.0), watch)
    pause.fail()
    pause.succeed()
    pause.fail()
    assert (pause.failures, pause.left_s()) == (1, 1.0)


def test_a_reset_ends_the_pause() -> None:
    pause = RestartPause((60.0,), Watch())
    pause.fail()
    pause.reset()
    assert (pause.failures, pause.left_s()) == (0, 0.0)
