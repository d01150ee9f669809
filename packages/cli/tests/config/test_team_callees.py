"""`allow_sub_agent_calls` in a team file."""

from pathlib import Path

from remit import Brief, Hub
from remit_cli.config.composition import hub_of, reload
from remit_cli.config.load import load_team
from remit_models.toolbox import offers
from remit_testing import MemoryStore

CODE = "async def answer(brief): ...\n"
TEAM = """
[agents.boss]
run = "whom_to_ask:answer"
{boss}

[agents.clerk]
run = "whom_to_ask:answer"
"""
LATER = '\n[agents.later]\nrun = "whom_to_ask:answer"\n'


def written(folder: Path, boss: str, more: str = "") -> Path:
    (folder / "whom_to_ask.py").write_text(CODE, encoding="utf-8")
    file = folder / "remit.toml"
    file.write_text(TEAM.format(boss=boss) + more, encoding="utf-8")
    return file


async def test_an_agent_that_may_call_and_names_nobody_may_call_everyone() -> None:
    """O5: the document knows `allow_sub_agent_calls` alone."""
    hub, offered = Hub(store=MemoryStore()), list[str]()

    @hub.agent("boss", allow_sub_agent_calls=True)
    async def boss(brief: Brief) -> str:
        offered.extend(offer.name for offer in offers(brief))
        return str((await brief.delegate("clerk", objective="Go")).unwrap())

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        return "gone"

    async with hub:
        assert (await hub.ask("boss", "Go", user="u-1")).result == "gone"
    assert offered == ["sub_agent"]


async def test_a_callee_that_comes_only_with_a_restart_does_not_mean_everyone(tmp_path: Path) -> None:
    old = load_team(written(tmp_path, 'allow_sub_agent_calls = true\nmay_call = ["clerk"]'))
    async with hub_of(old) as hub:
        new = load_team(written(tmp_path, 'allow_sub_agent_calls = true\nmay_call = ["later"]', LATER))
        reload(hub, old, new)
        assert hub.cards["boss"].callees == frozenset()
