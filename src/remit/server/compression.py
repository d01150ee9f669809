"""Large JSON responses: encoded beside the event loop, and compressed for clients that accept it."""

import gzip

from remit.protocol.codec import encode
from remit.runtime.aside import aside
from remit.server.bodies import JSON, Headers, Send, quality_of_coding, send_bytes

# A smaller body is not worth the time.
WORTH_IT = 2_048
# Beyond this level a table of delegations gets 3 % smaller, and takes twice the time.
LEVEL = 4


async def send_large(send: Send, headers: Headers, value: object) -> None:
    """Send a value as JSON, compressed with gzip if the client accepts that."""
    compress = quality_of_coding(headers, "gzip") > 0
    body, compressed = await aside.run(_encoded, value, compress)
    coding = ((b"content-encoding", b"gzip"),) if compressed else ()
    await send_bytes(send, 200, body, ((b"content-type", JSON), (b"vary", b"accept-encoding"), *coding))


def _encoded(value: object, compress: bool) -> tuple[bytes, bool]:
    body = encode(value)
    if not compress or len(body) < WORTH_IT:
        return body, False
    # The time would make equal bodies differ.
    return gzip.compress(body, LEVEL, mtime=0), True
