"""The JSON Schema of the extension that carries a remit, from the types that read and write it."""

from functools import cache
from typing import Any, cast

import msgspec

from remit_server.dialects.a2a.errors import EXTENSION, OutcomeWords, RemitWords
from remit_server.documents.schema import as_others_read, published

_NAMES = {"RemitWords": "Remit", "OutcomeWords": "Outcome", "UsageWords": "Usage"}


@cache
def extension_schema() -> dict[str, Any]:
    """Return one JSON Schema (draft 2020-12): `Remit` comes with a message, `Outcome` with a result."""
    sent, types = msgspec.json.schema_components((RemitWords, OutcomeWords), ref_template="#/$defs/{name}")
    schema = {"anyOf": published({"of": list(sent)}, _NAMES)["of"], "$defs": published(types, _NAMES)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": EXTENSION,
        "title": "Content of the A2A extension that carries a remit",
        **cast("dict[str, Any]", as_others_read(schema)),
    }
