"""A team whose store is a PostgreSQL database."""

from pathlib import Path
from textwrap import dedent

import pytest

from postgres_server import PASSWORD, PostgresServer, shared_server
from remit import Code, RemitError
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.resources import store_of


@pytest.fixture
def server() -> PostgresServer:
    return shared_server()


def write(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "remit.toml"
    file.write_text(
        dedent(f"""\
            [store]
            url = "{url}"
            {more}

            [agents.prime]
            run = "office:prime"
            may_call = ["tag-ai"]

            [agents.tag-ai]
            run = "office:tag"
            """)
    )
    return file


async def test_a_team_answers_from_a_database(folder: Path, server: PostgresServer) -> None:
    url = await server.database()
    bare = url.replace(url.partition("//")[2].partition("@")[0].partition(":")[2], "").replace(":@", "@")
    file = write(folder, bare, 'password = "$DATABASE_PASSWORD"')
    environ = {"DATABASE_PASSWORD": PASSWORD}
    team = load_team(file, environ=environ)
    async with hub_of(team, environ=environ) as hub:
        assert (await hub.ask("prime", "receipts", user="u-1")).unwrap() == "3 categories for receipts"
    assert not (folder / ".remit/hub.db").exists()
    store = store_of(team, environ)
    await store.open()
    assert [run.agent for run in await store.runs()] == ["prime"]
    await store.close()


def test_a_password_in_the_file_is_refused_and_not_repeated(folder: Path) -> None:
    with pytest.raises(RemitError) as caught:
        load_team(write(folder, "postgresql://ann:secret-word@host/hub"))
    assert caught.value.fault.code is Code.TEAM_INVALID
    assert "secret" in str(caught.value)
    assert "secret-word" not in str(caught.value)
