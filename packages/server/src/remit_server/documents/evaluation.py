"""Documents of evaluations: how the cases of a file ended."""

from typing import Annotated

from msgspec import Meta, Struct

from remit_server.documents.runs import Spent


class FailedRun(Struct, frozen=True, kw_only=True):
    """A run of a case that did not do what is expected."""

    run: Annotated[int, Meta(description="Its number among the runs of the case, from 1.")]
    failures: Annotated[tuple[str, ...], Meta(description="What was not as expected, one sentence for each.")]


class EvaluatedCase(Struct, frozen=True, kw_only=True):
    """How one case ended."""

    name: Annotated[str, Meta(description="The name of the case.")]
    agent: Annotated[str, Meta(description="The agent that was asked.")]
    runs: Annotated[int, Meta(description="How often it was run.")]
    passed: Annotated[int, Meta(description="How many of these runs were as expected.")]
    ok: Annotated[bool, Meta(description="Whether that reaches the threshold of the case, if it has one.")]
    usage: Annotated[Spent, Meta(description="Tokens spent in all runs.")]
    duration_ms: Annotated[int, Meta(description="Duration of all runs.")]
    failed: Annotated[tuple[FailedRun, ...], Meta(description="The runs that were not as expected.")] = ()


class Evaluation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.eval/1"):
    """How the cases of a file ended. Printed by `remit eval`."""

    runs: Annotated[int, Meta(description="The number of runs of all cases.")]
    passed: Annotated[int, Meta(description="How many of them were as expected.")]
    share: Annotated[float, Meta(description="The share of these runs, from 0 to 1.")]
    threshold: Annotated[float, Meta(description="The share that must pass.")]
    ok: Annotated[bool, Meta(description="Whether all thresholds are reached.")]
    cases: Annotated[tuple[EvaluatedCase, ...], Meta(description="The cases.")]
