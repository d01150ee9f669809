"""The store of a team: an SQLite file, or a PostgreSQL database that several hubs share."""

import os
from collections.abc import Mapping

from remit.policy.budget import estimate
from remit.runtime.ports import Store, TokenCounter
from remit.runtime.registry import team_invalid
from remit.stores.addresses import database_at
from remit.stores.checkpoints import key_path
from remit.stores.sqlite import SqliteStore
from remit_cli.config.checks import secret_of
from remit_cli.config.team import Team


def store_of(
    team: Team,
    environ: Mapping[str, str] = os.environ,
    *,
    make_key: bool = True,
    count: TokenCounter = estimate,
) -> Store:
    """Return the store of a team, not open yet. Without *make_key*, a missing key is not created."""
    section = team.store
    if section.url is None:
        return SqliteStore(
            team.store_path,
            durability=section.durability,
            make_key=make_key,
            count=count,
            encrypt=section.encrypt,
        )
    try:
        password = None if section.password is None else secret_of(section.password, environ)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return database_at(
        section.url,
        # Where it is for a file, so that a store can be moved without a new key.
        key=key_path(team.store_path),
        password=password,
        pooler=section.pooler,
        make_key=make_key,
        encrypt=section.encrypt,
        count=count,
    )
