"""Two processes on one store, each killed with -9 again and again: what either acknowledged, the other one has.

The small share of it runs with all tests; `make test-kills` runs all of it.
"""

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from hub.test_kill import Life, Nursery, executed, listen, listen_then_kill
from remit.stores.audit import verify_file

pytestmark = pytest.mark.processes

KILLS = int(os.environ.get("REMIT_KILLS", "12"))
# Only ends what hangs.
BOUND_S = 120 + 10 * KILLS


class Turns:
    """The lives that are left, and what was acknowledged in any of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lock = threading.Lock()
        self._left = {0: KILLS // 2, 1: KILLS - KILLS // 2}
        self.acknowledged: dict[str, object] = {}
        self.failures: list[BaseException] = []
        self.kills: Counter[int] = Counter()

    def next(self, place: int) -> Life | None:
        """Return the next life, which asks again for some of what either process has acknowledged; None: it is over."""
        with self._lock:
            if not self._left[place] or self.failures:
                return None
            self._left[place] -= 1
            self.kills[place] += 1
            again = self._chance.sample(sorted(self.acknowledged), min(len(self.acknowledged), 20))
            return Life(self.kills.total(), again, True)

    def live(self, place: int, nursery: Nursery) -> None:
        """Start and kill one process after another."""
        chance = random.Random(place)
        try:
            while (life := self.next(place)) is not None:
                with self._lock:
                    answers = {id: self.acknowledged[id] for id in life.again}
                listen_then_kill(nursery, nursery.start(life), answers, chance)
                with self._lock:
                    for id, answer in answers.items():
                        assert self.acknowledged.setdefault(id, answer) == answer, id
        except BaseException as error:  # noqa: BLE001 - raised again by the test, in its own thread
            self.failures.append(error)


@pytest.mark.timeout(BOUND_S)
@pytest.mark.parametrize("durability", ["process", "power"])
def test_two_processes_on_one_store_lose_no_answer_and_repeat_no_work(tmp_path: Path, durability: str) -> None:
    """Decisions 5, 6 and 14: every acknowledged answer is there, nothing was executed twice, and the chain verifies."""
    turns = Turns(random.Random(durability))
    nurseries = [Nursery(tmp_path, durability) for _ in range(2)]
    try:
        threads = [threading.Thread(target=turns.live, args=each) for each in enumerate(nurseries)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if turns.failures:
            raise turns.failures[0]
        nurseries[0].start(Life(KILLS + 1, sorted(turns.acknowledged), False))
        confirmed = listen(nurseries[0], turns.acknowledged)
    finally:
        for nursery in nurseries:
            nursery.end()
    twice = [name for name, count in executed(tmp_path).items() if count > 1]
    lost = sorted(turns.acknowledged.keys() - confirmed)
    figures = f"acknowledged {len(turns.acknowledged)}, lost {len(lost)}, executed twice {len(twice)}"
    print(f"{durability}: kills {dict(turns.kills)}, {figures}")
    assert (lost, twice) == ([], [])
    assert turns.acknowledged.keys() <= executed(tmp_path).keys()
    assert verify_file(tmp_path / "hub.db").ok
