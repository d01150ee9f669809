"""The OpenAPI documents of both servers are valid by the rules of OpenAPI, and by those of a linter."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from a2a_install import node
from checkout import ROOT

WEB = ROOT / "web"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    made = subprocess.run([sys.executable, WEB / "schemas.py"], capture_output=True, text=True, check=True)
    return json.loads(made.stdout)


def wrong_in(document: dict[str, Any]) -> list[str]:
    found = OpenAPIV31SpecValidator(document).iter_errors()
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message[:200]}" for each in found]


@pytest.mark.parametrize("name", ["operator", "shared"])
def test_a_document_is_valid(documents: dict[str, Any], name: str) -> None:
    assert wrong_in(documents[name]) == []


@pytest.mark.parametrize("name", ["operator", "shared"])
def test_every_operation_has_a_group_and_a_description(documents: dict[str, Any], name: str) -> None:
    document = documents[name]
    groups = {each["name"] for each in document["tags"]}
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert {tag for each in operations for tag in each["tags"]} <= groups
    assert all(each["description"] and each["summary"] for each in operations)
    texts = [schema.get("description", "") for schema in document["components"]["schemas"].values()]
    assert [text for text in texts if "\n  " in text] == [], "four spaces are a code block in Markdown"


def test_a_document_that_is_not_valid_is_found(documents: dict[str, Any]) -> None:
    spoilt = copy.deepcopy(documents["operator"])
    del spoilt["paths"]["/v1/runs/{run}"]["get"]["parameters"]
    spoilt["components"]["schemas"]["Submission"]["properties"]["target"]["type"] = "text"
    assert len(wrong_in(spoilt)) >= 2


@pytest.mark.parametrize("name", ["operator", "shared"])
def test_a_linter_finds_nothing_wrong(documents: dict[str, Any], name: str, tmp_path: Path) -> None:
    if not (WEB / "node_modules").exists():
        pytest.skip("the packages of web/ are not installed: there was no registry when the console was built")
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(documents[name]), encoding="utf-8")
    command = [node() / "bin" / "node", WEB / "lint.mjs", file]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=True, timeout=200)
    assert json.loads(done.stdout) == []
