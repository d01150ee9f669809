"""`[bus]` of a team file: what is wrong with it, and which agents a hub then has itself."""

from pathlib import Path

from remit import RemitError
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


def problems(folder: Path, bus: str, environ: dict[str, str] | None = None) -> list[str]:
    file = folder / "remit.toml"
    file.write_text(bus + AGENTS, encoding="utf-8")
    try:
        load_team(file, environ=environ or {}, code=False)
    except RemitError as error:
        return [f"{each.path}: {each.message}" for each in error.fault.problems]
    return []


def test_two_proofs_and_missing_files_are_refused(tmp_path: Path) -> None:
    bus = '[bus]\nurl = "tls://bus"\nhosts = ["boss"]\ncredentials = "no.creds"\ntoken = "$TOKEN"\n'
    found = problems(tmp_path, bus, {"TOKEN": "t"})
    assert found == [
        f"remit.toml:4 bus.credentials: {tmp_path / 'no.creds'} does not exist",
        "remit.toml:5 bus.token: `credentials` already says who connects; leave one of them out",
    ]


def test_hubs_with_keys_are_checked(tmp_path: Path) -> None:
    keys = [f"ed25519/{digit * 64}" for digit in "ab"]
    bus = f"""[bus]
url = "nats://bus:4222"
hosts = ["boss"]
[bus.hubs.one]
keys = ["{keys[0]}"]
[bus.hubs.two]
keys = ["{keys[0]}", "{keys[1]}"]
hosts = ["helpr"]
"""
    assert problems(tmp_path, bus) == [
        f"remit.toml:4 bus.hubs: {tmp_path / '.remit/hub.key'}: no hub key found. Make one with `remit keys init`.",
        "remit.toml:7 bus.hubs.two.keys: `one` already has this key",
        "remit.toml:8 bus.hubs.two.hosts: there is no agent `helpr`; did you mean `helper`?",
    ]


def test_a_hub_needs_the_code_of_the_agents_that_it_hosts_and_of_no_others(tmp_path: Path) -> None:
    bus = '[bus]\nurl = "nats://127.0.0.1:1"\nhosts = ["boss"]\ntoken = "$TOKEN"\n'
    (tmp_path / "boss_only.py").write_text("async def boss(brief): return brief.text\n", encoding="utf-8")
    (tmp_path / "remit.toml").write_text(bus + AGENTS, encoding="utf-8")
    team = load_team(tmp_path / "remit.toml", environ={"TOKEN": "t"})
    hub = hub_of(team, environ={"TOKEN": "t"})
    assert (sorted(hub.cards), sorted(hub.remotes)) == (["boss", "helper"], ["helper"])
    assert settings_of(team, {"TOKEN": "t"}).token == "t"
