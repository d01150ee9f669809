"""Reads the files in deploy/."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))


def manifest(kind: str) -> dict[str, Any]:
    (matching,) = [each for each in manifests() if each["kind"] == kind]
    return matching


def expressions() -> Iterator[str]:
    """Yield every query of the dashboard and the alerts."""
    for panel in json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m").replace("$agent", ".*")
    for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
