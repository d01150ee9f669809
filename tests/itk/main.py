"""Starts the agent as the kit starts its agent `current`: with two ports, until it is told to stop.

To run the kit with it: `make test-itk KIT=…`, where KIT is a checkout of https://github.com/a2aproject/a2a-itk.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from itk_agent import itk_agent


async def main(port: int, grpc_port: int) -> None:
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    with TemporaryDirectory() as folder:
        async with itk_agent(Path(folder) / "hub.db", port=port, grpc_port=grpc_port) as address:
            print(address, flush=True)
            await stopped.wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--httpPort", type=int, default=0, dest="port")
    arguments.add_argument("--grpcPort", type=int, default=0, dest="grpc_port")
    given = arguments.parse_args()
    asyncio.run(main(given.port, given.grpc_port))
