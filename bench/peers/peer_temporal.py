"""Temporal's SDK: its server is another program, which is fetched when it is first needed."""

import asyncio
import importlib.metadata
import json

from measuring import memory_mb
from temporalio import activity, client, worker, workflow
from temporalio.testing import WorkflowEnvironment

IMPORTED = (activity, client, worker, workflow)


async def why_not() -> str:
    """Return why the server cannot be had; nothing if it can."""
    try:
        async with await WorkflowEnvironment.start_local():
            return ""
    except RuntimeError as error:
        return str(error).split(": error sending")[0]


if __name__ == "__main__":
    missing = asyncio.run(why_not())
    print(
        json.dumps(
            {
                "versions": {"temporalio": importlib.metadata.version("temporalio")},
                "memory_mb": memory_mb(),
                "not_measured": missing or "the server could be had, and is not measured yet",
            }
        )
    )
