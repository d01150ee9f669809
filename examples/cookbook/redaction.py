"""Keep personal data from a model: it reads tokens in the place of addresses and accounts, the user gets them back."""

import os

from remit import Hub
from remit_models import ModelAgent
from remit_testing import MemoryStore
from scripted import Message, scripted_model

ASKED = "Write to ada@example.org that 20 euros went to DE89 3704 0044 0532 0130 00."


def main() -> None:
    seen: list[list[Message]] = []
    os.environ.setdefault("OPENAI_API_KEY", "none")

    def reply(messages: list[Message]) -> str:
        return f"Sent: {messages[-1]['content']}"

    with scripted_model([reply], seen) as url:
        hub = Hub(store=MemoryStore())
        hub.add("clerk", ModelAgent("openai:gpt-5-mini", base_url=url, prompt="You write mails."))
        with hub:
            response = hub.ask_sync("clerk", ASKED, user="ada")
    prompt = str(seen)
    print("the model saw the address:", "ada@example.org" in prompt)
    print("the model saw the account:", "3704" in prompt)
    print("the model saw tokens:", "[EMAIL:" in prompt and "[IBAN:" in prompt)
    print("the user reads:", response.unwrap())


if __name__ == "__main__":
    main()
