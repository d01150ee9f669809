"""The files in deploy/ agree with each other and with the program."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from commands import run_program
from deploy_files import DEPLOY, expressions, manifest
from doc_pages import page_text
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit_cli.config.sections.hub import ServeSection
from remit_cli.config.values import duration_ms
from remit_server import server_endpoints

REMIT = Path(sys.executable).with_name("remit")


def test_dashboards_and_alerts_name_only_metrics_that_the_server_has() -> None:
    source = Path(server_endpoints.__file__).read_text(encoding="utf-8")
    known = set(re.findall(r'_head\(\s*"(remit_\w+)"', source))
    named = {re.sub(r"_(bucket|sum|count)$", "", each) for each in re.findall(r"remit_\w+", "\n".join(expressions()))}
    assert named
    assert named <= known
    assert known - named == set(), "a metric that no dashboard and no alert shows"


def test_alerts_and_dashboards_name_only_codes_and_states_that_exist() -> None:
    text = "\n".join(expressions())
    codes = re.findall(r'(?:reason|code)="(\w+)"', text)
    states = [each for some in re.findall(r'status=~"([\w|]+)"', text) for each in some.split("|")]
    assert codes
    assert set(codes) <= {code.value for code in Code}
    assert states
    assert set(states) <= {status.value for status in Status}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "remit.service"
    text = (DEPLOY / "remit.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/remit/bin/remit", str(REMIT)), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    if "Failed to" in done.stderr and "remit.service" not in done.stderr:
        pytest.skip("systemd-analyze cannot work here: " + done.stderr.strip())
    assert "remit.service" not in done.stderr


def test_a_stop_takes_longer_than_a_drain() -> None:
    drain_s = duration_ms(ServeSection().drain) / 1_000
    (unit_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "remit.service").read_text("utf-8"), re.MULTILINE)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["hub"]
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    stops = [int(unit_s), int(compose["stop_grace_period"].rstrip("s")), pod["terminationGracePeriodSeconds"]]
    assert [stop for stop in stops if stop <= drain_s] == []


def test_the_team_of_the_manifest_is_valid(tmp_path: Path) -> None:
    for name, text in manifest("ConfigMap")["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tokens = {"WEB_TOKEN": "a" * 32, "METRICS_TOKEN": "b" * 32}
    done = run_program([str(REMIT), "validate", "--code"], folder=tmp_path, variables={**os.environ, **tokens})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_containers_are_not_root_and_write_to_their_volume_alone() -> None:
    container = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    (user,) = re.findall(r"^USER (\d+):\d+$", container, re.MULTILINE)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["hub"]
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    (hub,) = pod["containers"]
    assert user == compose["user"].split(":")[0] == str(pod["securityContext"]["runAsUser"]) != "0"
    assert compose["read_only"] is True
    assert hub["securityContext"]["readOnlyRootFilesystem"] is True
    assert "REMIT_STORE__PATH=/data/hub.db" in container
    assert "data:/data" in compose["volumes"]
    assert {"name": "data", "mountPath": "/data"} in hub["volumeMounts"]
    assert hub["args"] == json.loads(re.findall(r"^CMD (\[.+\])$", container, re.MULTILINE)[-1])


def test_the_page_names_every_file() -> None:
    page = page_text("deployment")
    assert [path.name for path in sorted(DEPLOY.iterdir()) if f"deploy/{path.name}" not in page] == []
