"""Checks bills of materials against the schema of CycloneDX: `make build`, in the environment for releases."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

cyclonedx: Any = import_module("cyclonedx.schema")
validation: Any = import_module("cyclonedx.validation.json")


def main() -> None:
    """Check the files that are named."""
    validator = validation.JsonStrictValidator(cyclonedx.SchemaVersion.V1_6)
    for path in map(Path, sys.argv[1:]):
        if error := validator.validate_str(path.read_text(encoding="utf-8")):
            sys.exit(f"{path} is no valid CycloneDX document: {error}")


if __name__ == "__main__":
    main()
