"""Erases a user from a store."""

from hashlib import blake2b

from remit.runtime.keys import HubKeys
from remit.runtime.signing import CheckpointKey
from remit.stores.removal_plan import OfUser
from remit.stores.retention import Erased
from remit.stores.upkeep_port import StoreUpkeep


def subject_of(key: CheckpointKey, user: str) -> str:
    """Return the digest under which an erasure is recorded: whoever holds the key can check a name against it."""
    return blake2b(user.encode(), key=key.seed, digest_size=16, person=b"remit subject").hexdigest()


def erase(upkeep: StoreUpkeep, user: str, keys: HubKeys) -> Erased:
    """Remove everything of a user, and record that it was done; doing it again completes what was interrupted.

    *keys* are those with which redacted values are encrypted. Raises `StoreError` while runs of the user are open.
    """
    upkeep.check_no_open_run(user)
    subject = subject_of(upkeep.key, user)
    upkeep.seal()  # so that everything of theirs is in a segment
    belongings = upkeep.belongings(user, keys)
    rows = 0
    refused: list[str] = []
    for segment in upkeep.segments():
        part = upkeep.remove(segment, OfUser(user, belongings.runs, subject))
        rows += part.rows
        refused += [part.refused] if part.refused else []
    values, facts = upkeep.delete(belongings, rows, subject)
    upkeep.seal()
    upkeep.give_back()
    return Erased(subject, rows, facts, values, tuple(refused))
