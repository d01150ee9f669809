"""Kubernetes and Prometheus would accept the files in deploy/; `make test-deploy` runs this with their schemas."""

from typing import Any

import pytest

from deploy_files import expressions, manifests

kubernetes = pytest.importorskip("kubernetes_validate", reason="run by make test-deploy")
prometheus = pytest.importorskip("promql_parser", reason="run by make test-deploy")


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: each["kind"])
def test_kubernetes_accepts_the_manifest(manifest: dict[str, Any]) -> None:
    kubernetes.validate(manifest, "1.34", strict=True)


@pytest.mark.parametrize("expression", [*expressions()])
def test_prometheus_can_read_the_query(expression: str) -> None:
    prometheus.parse(expression)
