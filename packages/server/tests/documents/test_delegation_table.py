"""The table of a run's delegations: what each took and spent by itself, with those below it, and in money."""

from hypothesis import given
from hypothesis import strategies as st

from remit.protocol.envelope import MODEL, VERSION, Request, Response, Usage
from remit.protocol.lifecycle import Status
from remit.protocol.records import Body, Kind, Record
from remit.protocol.remit import Remit
from remit.runtime.run_tree import Tree
from remit_server.documents.delegation_table import covered, short_path, table_of
from remit_server.documents.spend import Pricing
from remit_server.model_prices import Price

REMIT = Remit(user="ada", depth=0, max_depth=5, time_ms=60_000, tokens=10_000)


def tree_of(*events: tuple[int, Body]) -> Tree:
    tree = Tree()
    for seq, (at_ms, body) in enumerate(events, start=1):
        kind = Kind.RESULT if isinstance(body, Response) else Kind.DELEGATION
        tree.feed(Record(seq=seq, kind=kind, at_ms=at_ms, run="run", session="run", body=body))
    return tree


def asked(path: str, agent: str, parent: str | None = "run") -> Request:
    origin = "user" if parent is None else "boss"
    return Request(version=VERSION, id=path, origin=origin, target=agent, remit=REMIT, run="run", parent=parent)


def answered(path: str, agent: str, took: int, tokens: int, model: str = "") -> Response:
    return Response(
        version=VERSION,
        id=path,
        target=agent,
        status=Status.SUCCESS,
        run="run",
        duration_ms=took,
        usage=Usage(prompt=tokens),
        metadata={MODEL: {"name": model, "cached": 0}} if model else {},
    )


def test_time_and_tokens_are_told_with_and_without_those_below() -> None:
    """Two that are at work at once are waited for once."""
    tree = tree_of(
        (1_000, asked("run", "boss", None)),
        (1_010, asked("run.1", "clerk")),
        (1_020, asked("run.2", "reader")),
        (1_050, answered("run.1", "clerk", 40, 100, "m:small")),
        (1_060, answered("run.2", "reader", 40, 300)),
        (1_100, answered("run", "boss", 100, 1_000, "m:large")),
    )
    prices = {"m:large": Price(input=10, output=0), "m:small": Price(input=1, output=0)}
    pricing = Pricing(price=prices.get, models={"reader": "m:small"})
    table = table_of(tree, tree.nodes_in_order(), 2_000, pricing.cost)
    assert table.path == ("", "1", "2")
    assert [table.names[each] for each in table.agent] == ["boss", "clerk", "reader"]
    assert (table.started, table.took, table.own) == ((0, 10, 20), (100, 40, 40), (50, 40, 40))
    assert (table.tokens, table.own_tokens) == ((1_000, 100, 300), (600, 100, 300))
    assert table.own_cost == (0.006, 0.0001, 0.0003)
    assert table.cost == (0.0064, 0.0001, 0.0003)
    assert table_of(tree, tree.nodes_in_order(), 2_000, Pricing().cost).cost == ()


def test_one_that_has_not_ended_is_told_so_far() -> None:
    tree = tree_of((1_000, asked("run", "boss", None)), (1_200, asked("run.1", "clerk")))
    table = table_of(tree, tree.nodes_in_order(), 1_500)
    assert [table.names[each] for each in table.state] == ["waiting", "running"]
    assert (table.took, table.own) == ((500, 300), (200, 300))


def test_a_path_of_another_run_is_told_apart() -> None:
    assert [short_path(path, "run") for path in ("run", "run.2.1", "runner.1")] == ["", "2.1", "/runner.1"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12))
def test_what_intervals_cover_is_counted_once(spans: list[tuple[int, int]]) -> None:
    points = {point for start, end in spans for point in range(start, end)}
    assert covered(spans) == len(points)
