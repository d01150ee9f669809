"""Shares of what is scarce: turns in a queue, and amounts of a bounded total, by client and by user."""

from collections import Counter, OrderedDict, deque
from typing import Generic, NamedTuple, TypeVar

from remit.protocol.remit import Priority

T = TypeVar("T")

# How many later requests of a higher priority may overtake a request: it never starves.
HEAD_START: dict[Priority, int] = {Priority.HIGH: 0, Priority.NORMAL: 100, Priority.LOW: 400}
# A user alone may hold two thirds of a total, a client eight ninths: what is left is for the others. More users, or
# clients, at once hold less each, and some always stays free.
USER_PER_FREE = 2
CLIENT_PER_FREE = 8


class ShareOwner(NamedTuple):
    """Whose work something is."""

    client: str = ""
    """The client or hub that sent the request; empty: a program of this hub."""
    user: str = ""
    """The user that it acts for; empty: not known yet."""


def order_of_turn(turn: int) -> tuple[Priority, ...]:
    """Return which priority comes first at a turn, counted from 1: the highest, but now and then a lower one."""
    if turn % HEAD_START[Priority.LOW] == 0:
        return (Priority.LOW, Priority.NORMAL, Priority.HIGH)
    if turn % HEAD_START[Priority.NORMAL] == 0:
        return (Priority.NORMAL, Priority.HIGH, Priority.LOW)
    return (Priority.HIGH, Priority.NORMAL, Priority.LOW)


_UserLine = OrderedDict[T, None]
_ClientLine = OrderedDict[str, _UserLine[T]]


class FairQueue(Generic[T]):
    """Items that wait for their turn. At each turn of a priority another client is served, and another of its users.

    The items of one user and priority keep their order. Items are distinct.
    """

    def __init__(self) -> None:
        self._lines: dict[Priority, OrderedDict[str, _ClientLine[T]]] = {each: OrderedDict() for each in HEAD_START}
        self._turn = 0
        self.size = 0
        """How many items wait."""

    def put(self, share: ShareOwner, item: T, priority: Priority = Priority.NORMAL) -> None:
        """Add an item behind the others of its user."""
        users = self._lines[priority].setdefault(share.client, OrderedDict())
        users.setdefault(share.user, OrderedDict())[item] = None
        self.size += 1

    def take(self) -> T | None:
        """Remove the item whose turn it is, and return it; None if nothing waits."""
        if not self.size:  # nearly always, and each hop asks
            return None
        self._turn += 1
        priority = next(each for each in order_of_turn(self._turn) if self._lines[each])
        clients = self._lines[priority]
        client = next(iter(clients))
        user = next(iter(clients[client]))
        item = next(iter(clients[client][user]))
        self._drop(priority, ShareOwner(client, user), item)
        if client in clients:
            clients.move_to_end(client)
            if user in clients[client]:
                clients[client].move_to_end(user)
        return item

    def remove(self, share: ShareOwner, item: T, priority: Priority = Priority.NORMAL) -> bool:
        """Remove an item that does not wait any longer; return whether it was there."""
        users = self._lines[priority].get(share.client)
        is_waiting = users is not None and share.user in users and item in users[share.user]
        if is_waiting:
            self._drop(priority, share, item)
        return is_waiting

    def make_room(self, share: ShareOwner) -> T | None:
        """Remove the last item of whoever has most in a full queue, and return it; None: that is *share* itself."""
        by_client: Counter[str] = Counter({share.client: 1})
        by_user: Counter[ShareOwner] = Counter({share: 1})
        for clients in self._lines.values():
            for client, users in clients.items():
                for user, line in users.items():
                    by_client[client] += len(line)
                    by_user[ShareOwner(client, user)] += len(line)
        # Counted with the new item, and at a tie it is the new one that has to go.
        most = max(by_client, key=lambda client: (by_client[client], client == share.client))
        largest = max((each for each in by_user if each.client == most), key=lambda one: (by_user[one], one == share))
        if largest == share:
            return None
        priority, users = next(
            (priority, users)
            for priority in reversed(HEAD_START)  # the least urgent first
            if (users := self._lines[priority].get(most)) is not None and largest.user in users
        )
        item = next(reversed(users[largest.user].keys()))
        self._drop(priority, largest, item)
        return item

    def _drop(self, priority: Priority, share: ShareOwner, item: T) -> None:
        clients = self._lines[priority]
        users = clients[share.client]
        line = users[share.user]
        del line[item]
        if not line:
            del users[share.user]
            if not users:
                del clients[share.client]
        self.size -= 1


class _Usage(Generic[T]):
    """Those who wait for a worker, by name, and how much each of them has used it."""

    def __init__(self) -> None:
        self.waiting: dict[str, T] = {}
        self._used: dict[str, float] = {}
        self._level = 0.0

    def add(self, name: str, waiting: T) -> T:
        """Add a name, unless it waits already; a new one has used as much as one who always had an equal part."""
        self._used.setdefault(name, self._level)
        return self.waiting.setdefault(name, waiting)

    def next(self) -> str:
        """Return who has used the worker least."""
        name = min(self._used, key=self._used.__getitem__)
        self._level = max(self._level, self._used[name])
        return name

    def charge(self, name: str, amount: float) -> T | None:
        """Count what a name has used, for all who wait and, if it waits for more, for itself."""
        self._level += amount / len(self._used.keys() | {name})  # else new ones would come first for ever
        if name in self._used:
            self._used[name] += amount
        return self.waiting.get(name)

    def drop(self, name: str) -> None:
        del self.waiting[name], self._used[name]


class ThreadQueue(Generic[T]):
    """Items that wait for one worker. Next is the client that has used it least, and the user of it that has.

    Turns by number would not be fair: to examine a body takes hundreds of times as long as to decode one.
    """

    def __init__(self) -> None:
        self._clients: _Usage[_Usage[deque[T]]] = _Usage()

    def put(self, share: ShareOwner, item: T) -> None:
        """Add an item behind the others of its user."""
        self._clients.add(share.client, _Usage()).add(share.user, deque()).append(item)

    def take(self) -> tuple[ShareOwner, T]:
        """Remove the next item, and return it with its owner; at least one waits."""
        client = self._clients.next()
        users = self._clients.waiting[client]
        user = users.next()
        line = users.waiting[user]
        item = line.popleft()
        if not line:
            users.drop(user)
            if not users.waiting:
                self._clients.drop(client)
        return ShareOwner(client, user), item

    def charge(self, share: ShareOwner, amount: float) -> None:
        """Count what an item has used, once it is known."""
        if (users := self._clients.charge(share.client, amount)) is not None:
            users.charge(share.user, amount)


class SharedTotal:
    """A bounded total of which each client and user may hold a part."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._clients: Counter[str] = Counter()
        self._users: Counter[ShareOwner] = Counter()

    def has_room(self, share: ShareOwner) -> bool:
        """Return whether a share may hold more; without a user, only its client's part is looked at."""
        free = self.most - self.held
        if share.user and self._users[share] >= USER_PER_FREE * free:
            return False
        return self._clients[share.client] < CLIENT_PER_FREE * free

    def take(self, share: ShareOwner, amount: int = 1) -> None:
        """Count an amount that a share holds from now on."""
        self.held += amount
        self._clients[share.client] += amount
        self._users[share] += amount

    def give_back(self, share: ShareOwner, amount: int = 1) -> None:
        """Count an amount that a share holds no longer."""
        self.held -= amount
        _subtract(self._clients, share.client, amount)
        _subtract(self._users, share, amount)


K = TypeVar("K")


def _subtract(counts: Counter[K], key: K, amount: int) -> None:
    counts[key] -= amount
    if not counts[key]:
        del counts[key]
