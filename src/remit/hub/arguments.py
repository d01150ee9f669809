"""Checks the arguments that a program gives to a hub: option names, permissions, kinds of personal data."""

from collections.abc import Collection, Mapping
from typing import cast

from remit.policy.reception import Permission
from remit.policy.redaction import KIND
from remit.protocol.card import Sees
from remit.protocol.codec import did_you_mean
from remit.protocol.remit import Names
from remit.runtime.registry import team_invalid


def permissions_of(client: str, given: Collection[str]) -> frozenset[Permission]:
    """Return the permissions of a client; raise a `RemitError` for one that does not exist."""
    known = [str(each) for each in Permission]
    for each in names_of(given, client, "may"):
        if each not in known:
            hint = did_you_mean(each, known) or f"; there are: {', '.join(known)}"
            raise team_invalid(f"`{client}` may not `{each}`: there is no such permission{hint}")
    return frozenset(map(Permission, given))


def refuse_unknown(options: Mapping[str, object], known: Collection[str]) -> None:
    """Raise a `TypeError` for an option that does not exist, as Python does for an unknown keyword argument."""
    for option in options:
        if option not in known:
            raise TypeError(f"got an unexpected keyword argument {option!r}")


def names_of(given: Collection[str], agent: str, field: str) -> frozenset[str]:
    """Return names as a card holds them; a single text is refused, because its letters would be taken for names."""
    if isinstance(given, str):
        raise team_invalid(f"agent `{agent}`: {field} takes several names, not one text: [{given!r}]")
    return frozenset(given)


def seen_by(given: Collection[str] | Mapping[str, Collection[str]], who: str) -> Sees:
    """Return the kinds of personal data that a tool is given in clear, for all parameters or by parameter."""
    if isinstance(given, Mapping):
        named = cast("Mapping[str, Collection[str]]", given)
        return {name: _kinds(kinds, who, f"sees.{name}") for name, kinds in named.items()}
    return _kinds(given, who, "sees")


def seen_by_server(
    given: Collection[str] | Mapping[str, Collection[str] | Mapping[str, Collection[str]]], who: str
) -> Names | dict[str, Sees]:
    if isinstance(given, Mapping):
        named = cast("Mapping[str, Collection[str] | Mapping[str, Collection[str]]]", given)
        return {tool: seen_by(sees, f"{who}, tool `{tool}`") for tool, sees in named.items()}
    return _kinds(given, who, "sees")


def _kinds(given: Collection[str], who: str, field: str) -> frozenset[str]:
    if isinstance(given, str):
        raise team_invalid(f"{who}: {field} takes several kinds, not one text: [{given!r}]")
    for kind in given:
        if not KIND.fullmatch(kind):
            raise team_invalid(f"{who}: {field} names `{kind}`, which is not a kind of data such as EMAIL or IBAN")
    return frozenset(given)


def listed(given: Collection[str], server: str, field: str) -> Collection[str]:
    if isinstance(given, str):
        raise team_invalid(f"MCP server `{server}`: {field} takes several names, not one text: [{given!r}]")
    return given
