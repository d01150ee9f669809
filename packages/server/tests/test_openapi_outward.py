"""The OpenAPI document describes what is sent, and nothing that is kept from others."""

from remit.protocol.errors import INWARD
from remit_server.openapi import document


def test_what_only_the_operator_is_told_of_a_fault_is_not_in_the_document() -> None:
    found = document()
    schemas = found["components"]["schemas"]
    assert {"code", "message", "suggestion", "problems"} <= schemas["Fault"]["properties"].keys()
    assert not set(INWARD) & schemas["Fault"]["properties"].keys()
    assert not {"Origin", "SourceLine"} & schemas.keys()
    assert "schemas/Origin" not in str(found)
