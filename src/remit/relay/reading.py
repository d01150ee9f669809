"""Who gets what comes to a device: answers go to its runs, questions to what it shares."""

import logging

from remit.protocol.errors import RemitError
from remit.relay import letters
from remit.relay.host import Host
from remit.relay.letters import Asks
from remit.relay.post import Post
from remit.relay.sharing import Sharing

_log = logging.getLogger("remit.relay")


async def read(post: Post, host: Host | None, sharing: Sharing | None) -> None:
    """Give each message to whom it is for, until cancelled; what is for nobody is forgotten."""
    async for opened in post:
        try:
            letter = letters.read(opened.body)
        except RemitError as error:
            _log.warning("%s: %s", opened.sender, error.fault.message)
            await post.taken(opened)
            continue
        if isinstance(letter, Asks):
            if sharing is None:
                await post.taken(opened)
            else:
                sharing.take(opened, letter)
        elif host is None:
            await post.taken(opened)
        else:
            await host.take(opened, letter)
