"""The code of every agent of the simulated team."""

from remit import Brief
from simulate.world import carry_out


async def work(brief: Brief) -> str:
    """Do what the plan of the simulated world says."""
    return await carry_out(brief)
