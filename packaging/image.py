"""The OCI image, from scratch: the program, the libraries of glibc that it needs, roots of trust.

The program is linked as in the other packages, with glibc, because a static one resolves names by
other rules than the machine's own programs. The image has Debian's glibc, by the version that is
installed where the image is made.
"""

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import archives
import program
import sbom
from tree import DIST, MACHINE, WORK, epoch, project, run, version

USER = 65532
LIBRARIES = Path("/lib/x86_64-linux-gnu")
LOADER = Path("/lib64/ld-linux-x86-64.so.2")
# The package's own certificates: the machine's bundle may have others beside them.
CERTIFICATES = Path("/usr/share/ca-certificates/mozilla")
DEBIAN = ("libc6", "ca-certificates")


def make() -> None:
    """Makes the image as an archive in OCI's layout."""
    layer = WORK / "image.tar"
    owners = {"var/lib/sanderling": USER, "run/sanderling": USER}
    archives.pack(fill(WORK / "image"), layer, owners=owners)
    folder = WORK / "oci"
    shutil.rmtree(folder, ignore_errors=True)
    tag = f"{folder}:{version()}"
    moment = datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    run(["umoci", "init", "--layout", str(folder)])
    run(["umoci", "new", "--image", tag])
    history = ["--history.created", moment, "--history.created_by", "make dist",
               "--history.author", project()["maintainer"]]
    run(["umoci", "raw", "add-layer", "--image", tag, *history, str(layer)])
    run(["umoci", "config", "--image", tag, "--created", moment, "--no-history", *settings(),
         *labels()])
    run(["umoci", "gc", "--layout", str(folder)])
    name = f"sanderling-{version()}-{MACHINE}.oci"
    archives.pack(folder, DIST / f"{name}.tar")
    sbom.write(DIST / f"{name}.cdx.json", "sanderling-image", "sanderling-cli", "container",
               [debian_component(package) for package in DEBIAN])


def settings() -> list[str]:
    """Returns how the program is run."""
    return [
        "--config.user", f"{USER}:{USER}",
        "--config.workingdir", "/var/lib/sanderling",
        "--config.entrypoint", "/usr/bin/sanderling",
        "--config.cmd", "--help",
        "--config.stopsignal", "SIGTERM",
        "--config.env", "PATH=/usr/bin",
        "--config.env", "SANDERLING_NAMENODE_DIR=/var/lib/sanderling/namenode",
        "--config.env", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
        "--config.volume", "/var/lib/sanderling",
        "--config.volume", "/tmp",
        "--architecture", "amd64",
        "--os", "linux",
        "--author", project()["maintainer"],
    ]


def labels() -> list[str]:
    """Returns the labels of OCI's list, and two of our own."""
    about = project()
    found = {
        "title": "sanderling",
        "description": about["summary"],
        "version": version(),
        "licenses": about["licence"],
        "url": about["homepage"],
        "source": about["repository"],
        "documentation": about["documentation"],
        "vendor": about["maintainer"],
        "authors": f"{about['maintainer']} <{about['email']}>",
    }
    named = {f"org.opencontainers.image.{key}": value for key, value in found.items()}
    named |= {"issues": about["issues"], "security": about["security"]}
    return [word for key, value in named.items() for word in ("--config.label", f"{key}={value}")]


def fill(root: Path) -> Path:
    """Puts everything that the image has into a folder; returns it."""
    shutil.rmtree(root, ignore_errors=True)
    laid = WORK / "image-usr"
    program.lay_out(laid)
    binary = root / "usr/bin/sanderling"
    program.place(laid / "bin/sanderling", binary, 0o755)
    # Nothing in the image could show the pages.
    shutil.copytree(laid / "share/doc", root / "usr/share/doc",
                    ignore=shutil.ignore_patterns("docs", "deploy"))
    for library in needed(binary):
        program.place(LIBRARIES / library, root / "lib/x86_64-linux-gnu" / library, 0o755)
    program.place(LOADER.resolve(), root / LOADER.relative_to("/"), 0o755)
    for package in DEBIAN:
        program.place(Path("/usr/share/doc", package, "copyright"),
                      root / "usr/share/doc" / package / "copyright", 0o644)
    bundle = "".join(path.read_text() for path in sorted(CERTIFICATES.glob("*.crt")))
    texts = {
        "etc/passwd": f"root:x:0:0:root:/:/none\nsanderling:x:{USER}:{USER}::/tmp:/none\n",
        "etc/group": f"root:x:0:\nsanderling:x:{USER}:\n",
        "etc/nsswitch.conf": "hosts: files dns\n",
        "etc/ssl/certs/ca-certificates.crt": bundle,
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    for folder in ("var/lib/sanderling", "run/sanderling", "tmp", "proc", "sys", "dev"):
        (root / folder).mkdir(parents=True)
    for folder in root.rglob("*"):
        if folder.is_dir():
            folder.chmod(0o755)
    (root / "tmp").chmod(0o1777)
    return root


def needed(binary: Path) -> list[str]:
    """Returns the libraries that the loader opens for a program, and those of name resolution."""
    shown = subprocess.run(["readelf", "--dynamic", binary], capture_output=True, text=True,
                           check=True).stdout
    found = re.findall(r"\(NEEDED\).*\[(.*)\]", shown)
    return sorted(set(found) - {LOADER.name} | {"libc.so.6"})


def debian_component(package: str) -> dict:
    """Returns an installed Debian package as a component."""
    shown = subprocess.run(["dpkg-query", "--show", "--showformat=${Version}", package],
                           capture_output=True, text=True, check=True).stdout
    place = f"pkg:deb/debian/{package}@{shown}"
    return {"type": "library", "bom-ref": place, "purl": place, "name": package, "version": shown}
