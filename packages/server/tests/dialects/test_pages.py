"""Every field of a document is on the page of its dialect."""

import pytest
from msgspec import Struct

from doc_pages import page_text
from remit_server.dialects import NAMES, contract, employee, librarian, subagent

FIELDS: dict[str, tuple[type[Struct], ...]] = {
    "employee": (
        employee.DelegationRequest,
        employee.EmployeeConstraints,
        employee.HandoffData,
        employee.Reference,
        employee.DelegationResponse,
        employee.TokenUsage,
        employee.UsedSource,
    ),
    "librarian": (
        librarian.LibrarianRequest,
        librarian.DelegationContext,
        librarian.LibrarianResponse,
        librarian.LibrarianError,
        librarian.DelegateRequest,
        librarian.DelegateContext,
    ),
    "contract": (
        contract.ContractRequest,
        contract.Context,
        contract.ContractResponse,
        contract.Metadata,
        contract.IntentClassification,
        contract.IntentTarget,
    ),
    "subagent": (subagent.SubAgentCall, subagent.SubAgentArgs, subagent.SubAgentContext, subagent.SubAgentResult),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_on_the_page(name: str) -> None:
    page = page_text(f"dialect-{name}")
    missing = {
        field
        for kind in FIELDS[name]
        for field in kind.__struct_encode_fields__
        if not any(written in page for written in (f"`{field}`", f"`{field}.", f".{field}`"))
    }
    assert missing == set()


def test_every_dialect_is_in_the_overview() -> None:
    overview = page_text("dialects")
    assert [name for name in NAMES if f"(dialect-{name}.md)" not in overview] == []
