"""What a device's team has on record of its dealings with other devices, for tests."""

from collections.abc import Sequence
from pathlib import Path

from remit.protocol.records import Record, SharedStep
from remit.stores.sqlite import SqliteStore
from remit_relay.e2e.channel import MessageCipher
from remit_relay.messages.audit import Recording


async def recorded(device: MessageCipher, file: Path) -> list[Record]:
    """Return what stands in the store at *file* once everything that was noted in the device was brought there."""
    store = SqliteStore(file, durability="process")
    await store.open()
    async with Recording(device.device.state, store, device=device.device.id):
        pass
    records = await store.records()
    await store.close()
    return records


def steps(records: Sequence[Record]) -> list[SharedStep]:
    """Return the steps among some records."""
    return [record.body for record in records if isinstance(record.body, SharedStep)]
