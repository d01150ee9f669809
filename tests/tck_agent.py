"""The agent that A2A's own conformance kit (a2aproject/a2a-tck) asks, served for everybody.

The kit chooses what the agent does by the first letters of the message id. To run it, from a clone of the kit:

    PYTHONPATH=tests .venv/bin/python tests/tck_agent.py --port 9999
    ./run_tck.py --sut-host http://localhost:9999
"""

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from remit import Answer, Brief, Code, Hub, RemitError
from remit.protocol.card import Rate
from remit.protocol.errors import fault
from remit.protocol.files import File
from remit_server import serve
from remit_server.a2a.grpc_server import GrpcListener
from remit_server.a2a.guests import PublicAccess
from remit_server.a2a.routes import Exposure
from remit_server.transports.addresses import OutboundHosts

NAME = "tck"
# Twice as long as the kit listens to a stream.
LONG_S = 4.0


async def act(brief: Brief) -> Answer:
    """Do what the id of the message asks for."""
    id = brief.request.id
    if id.startswith("tck-stream-artifact-chunked"):
        brief.say("chunk-1 ")
        brief.say("chunk-2")
        return Answer("chunk-1 chunk-2")
    if id.startswith("test-resubscribe-message-id"):
        brief.progress("at work")
        await asyncio.sleep(LONG_S)
        return Answer(None, summary="done")
    if id.startswith("tck-stream-002"):
        return Answer(None, summary="done")
    if id.startswith("tck-message-response"):
        return Answer("Direct message response", metadata={"a2a.message": True})
    if id.startswith("tck-input-required"):
        return Answer("What else?", requires_followup=True)
    if id.startswith("tck-reject-task"):
        raise RemitError(fault(Code.PERMISSION_DENIED, "rejected"))
    if id.startswith("tck-complete-task"):
        return Answer(None, summary="Hello from TCK")
    if id.startswith("tck-artifact-file-url"):
        file = File(name="output.txt", media_type="text/plain", url="https://example.com/output.txt")
        return Answer(None, files=(file,))
    if id.startswith(("tck-artifact-file", "tck-stream-artifact-file")):
        return Answer(None, files=(File(name="output.txt", media_type="text/plain", data=b"tck"),))
    if id.startswith("tck-artifact-data"):
        return Answer({"key": "value", "count": 42})
    return Answer(_TEXTS.get(id.rpartition("-")[0].partition("~")[0], f"Unhandled message id: {id}"))


_TEXTS = {
    "tck-stream-artifact-text": "Streamed text content",
    "tck-stream-ordering-001": "Ordered output",
    "tck-artifact-text": "Generated text content",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
}


async def main(port: int) -> None:
    with TemporaryDirectory() as folder:
        hub = Hub(name="tck", store=Path(folder) / "hub.db")
        hub.add(NAME, act, description="Does what A2A's conformance kit asks for.")
        everybody = PublicAccess(agents=(NAME,), rate=Rate(100_000, 60), open=100)
        # The kit is notified on this machine.
        here = OutboundHosts(hosts=frozenset({"localhost"}))
        exposure = Exposure(default=NAME, public=everybody, grpc=GrpcListener(), reach=here)
        async with hub, serve(hub, port=port, a2a=exposure) as address:
            print(address, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=9999)
    asyncio.run(main(arguments.parse_args().port))
