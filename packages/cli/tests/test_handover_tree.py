"""What `remit runs tree` says of a conversation that was handed over."""

from remit import Answer, Brief, Hub
from remit.runtime.run_tree import Tree
from remit_cli.show.runs import branches
from remit_cli.show.tree_lines import in_columns, lines_of
from remit_testing import MemoryStore


async def test_the_tree_says_who_took_over_and_who_handed_back() -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("desk", may_call=["billing"])
    async def desk(brief: Brief) -> Answer:
        return Answer(handover="billing") if "bill" in brief.text else Answer("nine")

    @hub.agent("billing")
    async def billing(brief: Brief) -> Answer:
        return Answer(handover="back") if "open" in brief.text else Answer("paid")

    shown: list[str] = []
    async with hub:
        for text in ("my bill", "when do you open?"):
            run = (await hub.ask("desk", text, user="u", session="s")).run
            tree = Tree()
            for record in await hub.store.records(run=run):
                tree.feed(record)
            shown += ["".join(part for part, _ in line) for line in in_columns(lines_of(tree, 0), 200, head=False)]
            found = branches(tree, run, 0)
            assert found is not None
            assert found.root.children[0].delegation.handling
    assert "the conversation is with billing now" in shown[0]
    assert "took the conversation over" in shown[1]
    assert "handed the conversation back to desk" in shown[3]
