"""Makes the software bill of materials of a wheel in CycloneDX: what it needs, and what is built into its packages.

What it needs comes from its metadata, for the platform on which it is made, with the versions and digests of
requirements.lock, and those of the wheels of this project beside it; what is built into the page of the console, from
the lock of npm.
"""

import json
import re
import zipfile
from base64 import b64decode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from doc_pages import ROOT

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"

Packages = dict[str, Distribution | Requirement]
"""Packages by name; those that are not installed here, and so not in the lock, as what is required of them."""


def required_by(requirements: Iterable[str], extras: Iterable[str] = ()) -> Packages:
    """Return what is installed for some requirements with *extras*, and for the requirements of these."""
    packages: Packages = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [(Requirement(each), frozenset(extras)) for each in requirements]
    while left:
        requirement, wanted = left.pop()
        marker, name = requirement.marker, canonicalize_name(requirement.name)
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
            continue
        its_extras = frozenset(requirement.extras)
        if (name, its_extras) in seen:
            continue
        seen.add((name, its_extras))
        try:
            package = packages[name] = distribution(name)
        except PackageNotFoundError:
            packages[name] = requirement
            continue
        left += [(Requirement(each), its_extras) for each in package.requires or []]
    return packages


def bill_of(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel that was built here."""
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        described = PathDistribution(zipfile.Path(archive, f"{info}/"))
        name, version = described.metadata["Name"], described.version
        requirements = described.requires or []
        extras = described.metadata.get_all("Provides-Extra") or []
        license_id = described.metadata["License-Expression"]
    digest = sha256(wheel.read_bytes()).hexdigest()
    needed, possible = required_by(requirements), required_by(requirements, extras)
    page = npm_components()
    root = _purl("pypi", name, version)
    edges = {
        root: [*(_reference(package) for package in _direct(requirements, possible)), *(each["purl"] for each in page)]
    }
    edges |= {
        _reference(package): [_reference(each) for each in _direct(package.requires or [], possible)]
        for package in possible.values()
        if isinstance(package, Distribution)
    }
    return {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid5(NAMESPACE_URL, f"sha256:{digest}").urn,
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "purl": root,
                "name": name,
                "version": version,
                "licenses": [{"expression": license_id}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": [
            *(
                _component(each, "required" if key in needed else "optional", wheel.parent)
                for key, each in sorted(possible.items())
            ),
            *page,
        ],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(on))} for ref, on in sorted(edges.items())],
    }


def npm_components() -> list[dict[str, Any]]:
    """Return the packages that are built into the page of the console."""
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))
    components: dict[str, dict[str, Any]] = {}
    for path, each in lock["packages"].items():
        if not path or {"dev", "optional", "devOptional"} & each.keys():
            continue
        name = path.rpartition("node_modules/")[2]
        purl = _purl("npm", name.replace("@", "%40", 1), each["version"])
        algorithm, _, content = each["integrity"].partition("-")
        components[purl] = {
            "type": "library",
            "bom-ref": purl,
            "purl": purl,
            "name": name,
            "version": each["version"],
            "scope": "required",
            "description": "built into the page of the console",
            "hashes": [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": b64decode(content).hex()}],
        }
    return [components[purl] for purl in sorted(components)]


@cache
def locked() -> Mapping[tuple[str, str], list[str]]:
    """Return the SHA-256 digests of each package and version in the lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==(\S+?)(?: ;.*)? \\\n((?: +--hash=.*\n)+)", text, flags=re.MULTILINE)
    return {(name, version): re.findall(r"sha256:([0-9a-f]{64})", hashes) for name, version, hashes in pins}


def _component(package: Distribution | Requirement, scope: str, beside: Path) -> dict[str, Any]:
    reference = _reference(package)
    made: dict[str, Any] = {"type": "library", "bom-ref": reference, "purl": reference, "scope": scope}
    if isinstance(package, Requirement):
        return {**made, "name": canonicalize_name(package.name), "description": f"required as {package}"}
    name = canonicalize_name(package.metadata["Name"])
    own = sorted(beside.glob(f"{name.replace('-', '_')}-{package.version}-*.whl")) if name.startswith("remit-") else []
    digests = [sha256(each.read_bytes()).hexdigest() for each in own] or locked()[name, package.version]
    made |= {"name": name, "version": package.version}
    if expression := package.metadata["License-Expression"]:
        made["licenses"] = [{"expression": expression}]
    made["externalReferences"] = [
        {
            "type": "distribution",
            "url": f"https://pypi.org/simple/{name}/",
            "comment": "the sdist and the wheels of this version",
            "hashes": [{"alg": "SHA-256", "content": each} for each in digests],
        }
    ]
    return made


def _direct(requirements: Iterable[str], known: Packages) -> list[Distribution | Requirement]:
    names = {canonicalize_name(Requirement(each).name) for each in requirements}
    return [known[name] for name in sorted(names) if name in known]


def _reference(package: Distribution | Requirement) -> str:
    if isinstance(package, Distribution):
        return _purl("pypi", package.metadata["Name"], package.version)
    (version,) = [each.version for each in package.specifier if each.operator == "=="] or [""]
    return _purl("pypi", package.name, version)


def _purl(kind: str, name: str, version: str) -> str:
    name = canonicalize_name(name) if kind == "pypi" else name
    return f"pkg:{kind}/{name}@{version}" if version else f"pkg:{kind}/{name}"


def write_bill(wheel: Path, folder: Path) -> Path:
    """Write the bill of materials of a wheel into *folder*, and return its file."""
    made = bill_of(wheel)
    component = made["metadata"]["component"]
    path = folder / f"{component['name']}-{component['version']}.cdx.json"
    path.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
