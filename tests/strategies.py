"""How hypothesis builds the values of the protocol, with every field of each."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from remit.protocol.card import AgentCard, Capability, Rate
from remit.protocol.conditions import ValueBounds
from remit.protocol.envelope import (
    VERSION,
    Answer,
    Artifact,
    Call,
    ContextFilter,
    Handoff,
    Message,
    Note,
    Request,
    Response,
    Source,
    Usage,
    View,
)
from remit.protocol.errors import Code, Fault, Problem
from remit.protocol.files import File
from remit.protocol.lifecycle import Status
from remit.protocol.remit import MAX_INTEGER, Priority, Remit
from samples import a_request

counts = st.integers(0, MAX_INTEGER)
shares = st.floats(0, 1)
texts = st.text(max_size=20)
names = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029"), min_size=1, max_size=20
)
name_sets = st.frozensets(names, max_size=3)
# Also comparisons that compare with no number: they are refused by a guard, not by the codec.
_values = st.text(max_size=8) | st.integers(-MAX_INTEGER, MAX_INTEGER) | st.booleans()
_bounds = st.builds(
    ValueBounds,
    in_=st.none() | st.tuples(_values),
    under=st.none() | st.tuples(st.text("a./", max_size=4)),
    at_most=st.none() | st.integers(0, 99).map(float),
)
conditions = _values | st.sampled_from(["<= 100", "> 5", "b*"]) | st.lists(_values, max_size=2).map(tuple) | _bounds
terms = st.dictionaries(names, conditions, max_size=2)
tool_limits = name_sets | st.dictionaries(names, terms | st.lists(terms, max_size=2).map(tuple), max_size=2)
priorities = st.sampled_from(Priority)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values: SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
json_objects = st.dictionaries(texts, json_values, max_size=2)


def optional(values: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.none() | values


def several(values: SearchStrategy[Any]) -> SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=2).map(tuple)


remits = st.builds(
    Remit,
    user=names,
    depth=counts,
    max_depth=counts,
    time_ms=counts,
    tokens=counts,
    chain=several(names),
    context_tokens=counts,
    tools=optional(tool_limits),
    targets=optional(name_sets),
    may_delegate=st.booleans(),
    priority=priorities,
    cost=optional(counts),
)

sources = st.builds(Source, owner_scope=names, source_id=names, relevance=optional(shares))

artifacts = st.builds(
    Artifact, type=st.sampled_from(["table", "json", "url", "id", "file"]), value=json_values, label=texts
)

file_names = st.text(st.sampled_from("abcäß .-_@1"), min_size=1, max_size=20).filter(lambda name: name.strip("."))
media_types = st.sampled_from(["image/png", "text/plain", "application/json", "application/octet-stream"])

files = st.builds(File, name=file_names, media_type=media_types, data=st.binary(max_size=20)) | st.builds(
    File, name=file_names, media_type=media_types, url=st.sampled_from(["https://example.org/a.png", "s3://b/c"])
)

usages = st.builds(
    Usage,
    prompt=counts,
    completion=counts,
    overrun=counts,
    estimated=st.booleans(),
    cache_write=counts,
    cache_read=counts,
    cost=counts,
    priced=counts,
)

faults = st.builds(
    Fault,
    code=st.sampled_from(Code),
    message=texts,
    recoverable=st.booleans(),
    suggestion=texts,
    problems=several(st.builds(Problem, texts, texts)),
    retry_after_ms=optional(counts),
    foreign=optional(texts),
)

handoffs = st.builds(
    Handoff,
    original_request=texts,
    history=optional(names),
    position=texts,
    prior_agents=several(names),
    prior_outputs=json_objects,
    decisions=several(texts),
    constraints=json_objects,
    findings=several(texts),
    data=json_objects,
    assumptions=several(texts),
    facts=several(texts),
    references=several(sources),
)

context_filters = st.builds(
    ContextFilter,
    last_messages=optional(counts),
    roles=optional(name_sets),
    keywords=optional(several(st.text(min_size=1, max_size=20))),
    include_summary=st.booleans(),
    include_workspace=st.booleans(),
    workspace_files=optional(several(st.text(min_size=1, max_size=20))),
    include_contents=st.booleans(),
    max_age_seconds=optional(counts),
    known=optional(st.sampled_from(["none", "decisions", "all"])),
)

messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant"]),
    text=texts,
    name=texts,
    tokens=counts,
    at_ms=counts,
    seq=counts,
    delegation=texts,
)

notes = st.builds(Note, st.sampled_from(["fact", "decision", "constraint", "answer"]), texts, texts)

views = st.builds(
    View,
    messages=several(messages),
    summary=texts,
    workspace=texts,
    known=several(notes),
    seen=several(counts),
    tokens=counts,
)

calls = st.builds(
    Call,
    target=optional(names),
    objective=texts,
    input=json_values,
    capability=optional(names),
    session=optional(names),
    max_tokens=optional(counts),
    deadline_ms=optional(counts),
    max_depth=optional(counts),
    context_tokens=optional(counts),
    tools=optional(tool_limits),
    targets=optional(name_sets),
    may_delegate=st.booleans(),
    priority=optional(priorities),
    context=optional(context_filters),
    handoff=optional(handoffs),
    hints=several(texts),
    reason=texts,
    refined_by=optional(names),
    correlation=optional(names),
    retry_of=optional(names),
    files=several(files),
)

requests = st.builds(
    Request,
    version=st.just(VERSION),
    id=names,
    origin=names,
    target=names,
    remit=remits,
    objective=texts,
    input=json_values,
    capability=optional(names),
    run=names,
    parent=optional(names),
    session=optional(names),
    parent_session=optional(names),
    handoff=optional(handoffs),
    context=optional(context_filters),
    view=optional(views),
    hints=several(texts),
    reason=texts,
    refined_by=optional(names),
    correlation=optional(names),
    retry_of=optional(names),
    created_ms=optional(counts),
    files=several(files),
)

answers = st.builds(
    Answer,
    result=json_values,
    summary=texts,
    confidence=optional(shares),
    artifacts=several(artifacts),
    new_facts=several(texts),
    sources=several(sources),
    usage=optional(usages),
    requires_followup=st.booleans(),
    warnings=several(texts),
    finished=several(texts),
    unfinished=several(texts),
    calls=several(calls),
    metadata=json_objects,
    files=several(files),
)

responses = st.builds(
    Response,
    version=st.just(VERSION),
    id=names,
    target=names,
    status=st.sampled_from(Status),
    run=names,
    session=optional(names),
    result=json_values,
    summary=texts,
    confidence=optional(shares),
    artifacts=several(artifacts),
    new_facts=several(texts),
    sources=several(sources),
    usage=usages,
    duration_ms=counts,
    queued_ms=counts,
    waited_ms=counts,
    requires_followup=st.booleans(),
    fault=optional(faults),
    tool_calls=several(texts),
    warnings=several(texts),
    finished=several(texts),
    unfinished=several(texts),
    path=several(names),
    agent_version=texts,
    capability_version=optional(texts),
    cache=st.sampled_from(["none", "miss", "hit", "similar"]),
    metadata=json_objects,
    files=several(files),
)

capabilities = st.builds(
    Capability,
    code=names,
    version=texts,
    description=texts,
    input_schema=optional(json_objects),
    result_schema=optional(json_objects),
    time_ms=optional(counts),
    tokens=optional(counts),
    read_only=st.booleans(),
    cache_ms=optional(counts),
    cache_similar=st.booleans(),
    public=st.booleans(),
    hedge_ms=optional(counts),
    examples=several(texts),
)

rates = st.builds(Rate, calls=st.integers(1, MAX_INTEGER), seconds=st.floats(0, exclude_min=True, allow_infinity=False))

cards = st.builds(
    AgentCard,
    name=names,
    version=texts,
    description=texts,
    capabilities=several(capabilities),
    tools=name_sets,
    may_call=name_sets,
    allow_sub_agent_calls=optional(st.booleans()),
    max_sub_agent_depth=optional(counts),
    concurrency=st.integers(1, MAX_INTEGER),
    queue=counts,
    rate=optional(rates),
    time_ms=optional(counts),
    tokens=optional(counts),
    resumable=st.booleans(),
    isolation=st.sampled_from(["task", "process"]),
)

# ── what a person is asked about ──────────────────────────────────────────────────────────────────────────────────────

HIDDEN = "\u200b\u202e\u2066\u2800\u00ad\ufe0f\U000e0041\U000e0042"
_told = st.text(st.sampled_from(f'abc é{HIDDEN}раypal\n"5'), max_size=12)
_told_values = st.recursive(
    _told | st.integers(-9, 9**12) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_told, inner, max_size=3),
    max_leaves=8,
)
_told_files = st.lists(
    st.builds(
        File,
        name=st.sampled_from(["order.txt", "scan.png"]),
        media_type=st.sampled_from(["text/plain", "image/png"]),
        data=st.binary(max_size=20) | _told.map(str.encode) | st.just(b"x" * 9_000),
    ),
    max_size=2,
)
told_requests = st.builds(
    lambda **fields: replace(a_request(), **fields),
    objective=_told,
    input=_told_values,
    reason=_told,
    hints=st.lists(_told, max_size=2).map(tuple),
    files=_told_files.map(tuple),
    handoff=st.none()
    | st.builds(
        Handoff, original_request=_told, data=st.dictionaries(_told, _told_values, max_size=2), facts=st.tuples(_told)
    ),
    view=st.none() | st.builds(View, messages=st.tuples(st.builds(Message, role=st.just("user"), text=_told))),
    correlation=st.none() | _told,
    act=st.sampled_from(["call", "tool"]),
)
"""Requests with hidden and look-alike characters in every text, and files of every kind."""
