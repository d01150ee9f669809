"""Every field of a document is on the page of its dialect."""

import pytest
from msgspec import Struct

from doc_pages import page_text
from remit.dialects import NAMES, contract, employee_types, librarian_types, subagent

FIELDS: dict[str, tuple[type[Struct], ...]] = {
    "employee": (
        employee_types.DelegationRequest,
        employee_types.EmployeeConstraints,
        employee_types.HandoffData,
        employee_types.Reference,
        employee_types.DelegationResponse,
        employee_types.TokenUsage,
        employee_types.UsedSource,
    ),
    "librarian": (
        librarian_types.LibrarianRequest,
        librarian_types.DelegationContext,
        librarian_types.LibrarianResponse,
        librarian_types.LibrarianError,
        librarian_types.DelegateRequest,
        librarian_types.DelegateContext,
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
