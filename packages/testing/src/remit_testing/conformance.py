"""The conformance suite for stores: tests that anyone can run on their own store.

    class TestMyStore(StoreConformance):
        async def make(self) -> Store:
            return MyStore(...)

Run it with pytest and pytest-asyncio (`asyncio_mode = "auto"`). A test gets a store that is open, and closes it.
"""

from remit_testing.stores.archive import ArchiveConformance, ListingConformance
from remit_testing.stores.inbox import InboxConformance
from remit_testing.stores.records import ConversationConformance, RecordConformance
from remit_testing.stores.requests import RequestConformance, WaitingConformance


class StoreConformance(
    RecordConformance,
    RequestConformance,
    ArchiveConformance,
    WaitingConformance,
    InboxConformance,
    ConversationConformance,
    ListingConformance,
):
    """The promises of `remit.ports.Store`, one test each."""
