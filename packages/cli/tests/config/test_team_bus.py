"""`[bus]` of a team file: what is wrong with it, and which agents a hub then has itself."""

from pathlib import Path

from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cluster.nats.section import settings_of

AGENTS = """
[agents.boss]
run = "boss_only:boss"
may_call = ["helper"]

[agents.helper]
run = "not_here:helper"
"""


def test_a_hub_needs_the_code_of_the_agents_that_it_hosts_and_of_no_others(tmp_path: Path) -> None:
    bus = '[bus]\nurl = "nats://127.0.0.1:1"\nhosts = ["boss"]\ntoken = "$TOKEN"\n'
    (tmp_path / "boss_only.py").write_text("async def boss(brief): return brief.text\n", encoding="utf-8")
    (tmp_path / "remit.toml").write_text(bus + AGENTS, encoding="utf-8")
    team = load_team(tmp_path / "remit.toml", environ={"TOKEN": "t"})
    hub = hub_of(team, environ={"TOKEN": "t"})
    assert (sorted(hub.cards), sorted(hub.remotes)) == (["boss", "helper"], ["helper"])
    assert settings_of(team, {"TOKEN": "t"}).token == "t"
