"""Has the kit run its scenarios: every agent calls every other one, over each transport, in each way that it knows.

It is run by the kit's own environment, in the folder of the kit; see `run_kit.py`.
"""

import asyncio
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# Each order has another agent begin, which the kit asks itself.
ORDERS = (
    ["current", "python_v10", "ts_v10"],
    ["python_v10", "ts_v10", "current"],
    ["ts_v10", "current", "python_v10"],
)
WAYS = (("send_message", False), ("send_message", True), ("push_notification", False), ("resubscribe", True))
TRANSPORTS = ("jsonrpc", "http_json", "grpc")


async def main(versions: str) -> int:
    """Run all scenarios, and return how many failed."""
    kit: Any = import_module("testlib")
    agents, _, ports = await kit.start_itk_cluster(ORDERS[0])
    failed = total = 0
    try:
        for behavior, streaming in WAYS:
            for transport in TRANSPORTS:
                for order in ORDERS:
                    name = f"{behavior}{' streamed' if streaming else ''} over {transport}, from {order[0]}"
                    total += 1
                    if not await _passes(kit, name, order, behavior, transport, streaming):
                        failed += 1
                        print(f"FAILED  {versions}: {name}", flush=True)
    finally:
        kit.stop_itk_cluster(agents, ports)
    print(f"{versions}: {total - failed} of {total} scenarios passed ({', '.join(_versions())})", flush=True)
    return failed


async def _passes(kit: Any, name: str, sdks: list[str], behavior: str, transport: str, streaming: bool) -> bool:
    try:
        outcomes = await kit.execute_itk_test(
            sdks=sdks, behavior=behavior, scenario_name=name, protocols=[transport], streaming=streaming
        )
    except Exception as error:  # noqa: BLE001 - of one scenario, and the others are run all the same
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
        return False
    return all(each["passed"] for each in outcomes.values())


def _versions() -> list[str]:
    """Return the versions of the SDKs that the other agents are made with."""
    (python,) = Path("agents/python/v10/.venv").glob("lib/*/site-packages/a2a_sdk-*.dist-info")
    package = Path("agents/ts/v10/node_modules/@a2a-js/sdk/package.json").read_text(encoding="utf-8")
    javascript = package.partition('"version":')[2].partition('"')[2].partition('"')[0]
    return [f"a2a-sdk {python.name.split('-')[1].removesuffix('.dist')}", f"@a2a-js/sdk {javascript}"]


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(min(asyncio.run(main(sys.argv[1])), 1))
