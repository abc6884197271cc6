"""Bills of materials in the format CycloneDX 1.6, from cargo's lock file and metadata."""

import json
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

from tree import ROOT, epoch, project, version

sys.path.insert(0, str(ROOT / "scripts"))
import licences  # noqa: E402

# With what cargo features a root is built; all others with their defaults.
FEATURES = {"sanderling-cli": ("--no-default-features",)}


def write(out: Path, name: str, root: str, kind: str, more: list[dict] | None = None) -> None:
    """Writes what a package is linked with, and what else it has in it."""
    about = project()
    sums = {(package["name"], package["version"]): package["checksum"]
            for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
            if "checksum" in package}
    parts = [component(package, sums) for package in licences.linked(root, *FEATURES.get(root, ()))]
    parts += more or []
    own = {
        "type": kind,
        "bom-ref": f"pkg:generic/{name}@{version()}",
        "purl": f"pkg:generic/{name}@{version()}",
        "name": name,
        "version": version(),
        "description": about["summary"],
        "licenses": [{"expression": about["licence"]}],
        "externalReferences": [
            {"type": "website", "url": about["homepage"]},
            {"type": "vcs", "url": about["repository"]},
            {"type": "documentation", "url": about["documentation"]},
            {"type": "issue-tracker", "url": about["issues"]},
            {"type": "security-contact", "url": f"mailto:{about['security']}"},
        ],
    }
    moment = datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # The same content has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, parts, moment]))
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {"timestamp": moment, "component": own},
        "components": parts,
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]},
        ],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(bill, indent=2) + "\n")


def component(package: dict, sums: dict[tuple[str, str], str]) -> dict:
    """Returns a package of the registry as a component."""
    place = f"pkg:cargo/{package['name']}@{package['version']}"
    found = {
        "type": "library",
        "bom-ref": place,
        "purl": place,
        "name": package["name"],
        "version": package["version"],
        "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}],
    }
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found
