"""Give each user a number of tokens per day, which all their runs share."""

import tempfile
from pathlib import Path

from remit import Brief, Hub, Limits

# In a team file: [budgets] per_user_per_day = 800
LIMITS = Limits(user_tokens_per_day=800, root_tokens=600)


async def writer(brief: Brief) -> str:
    """Stand for a model call that costs 400 tokens."""
    left = brief.spend(prompt=300, completion=100)
    return f"a text about {brief.text} ({left} tokens of this run are left)"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        hub = Hub(store=Path(folder) / "hub.db", limits=LIMITS)
        hub.add("writer", writer)
        with hub:
            for user, topic in (("ada", "tea"), ("ada", "milk"), ("ada", "sugar"), ("bob", "tea")):
                response = hub.ask_sync("writer", topic, user=user)
                print(f"{user}: {response.result if response.ok else response.fault and response.fault.code}")


if __name__ == "__main__":
    main()
