"""The jars, with sources, documentation and POMs, in a Maven repository of files."""

import hashlib
import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import program
import sbom
from tree import DIST, MACHINE, NATIVE, ROOT, TARGET, TRIPLE, WORK, build_crate, epoch, run, version

HASHES = ("md5", "sha1", "sha256", "sha512")
MODULES = ("client", "hadoop", "spark")
KINDS = (".jar", "-sources.jar", "-javadoc.jar")


def names() -> list[str]:
    """Returns the files of the repository, without their hashes, by their paths in dist/."""
    found = []
    for module in ("parent", *MODULES):
        place = f"maven/io/sanderling/sanderling-{module}"
        kinds = (".pom",) if module == "parent" else (".pom", *KINDS)
        found += [f"{place}/{version()}/sanderling-{module}-{version()}{kind}" for kind in kinds]
        found.append(f"{place}/maven-metadata.xml")
    return found


def make(others: dict[str, Path] | None = None) -> None:
    """Builds the native half against the old glibc; deploys the modules into dist/maven.

    The jars also get the native halves for other machines, by the name that the client looks for.
    """
    build_crate(*NATIVE)
    built = program.stripped(TARGET / TRIPLE / "release/libsanderling_jni.so")
    native = WORK / "jvm-native"
    shutil.rmtree(native, ignore_errors=True)
    for machine, library in {MACHINE: built, **(others or {})}.items():
        program.place(library, native / "native" / machine / library.name, 0o755)
    run([sys.executable, "scripts/licences.py", "write", "sanderling-jni",
         str(native / "META-INF/THIRD-PARTY.txt")])
    program.place(ROOT / "LICENSE", native / "META-INF/LICENSE", 0o644)
    repository = DIST / "maven"
    shutil.rmtree(repository, ignore_errors=True)
    # Maven builds in the source tree: a copy keeps the jars of the tests as they are.
    tree = WORK / "jvm"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "jvm", tree, ignore=shutil.ignore_patterns("target"))
    moment = datetime.fromtimestamp(epoch(), UTC)
    run(["mvn", "--quiet", "--batch-mode", "-f", str(tree / "pom.xml"), "-Pdist", "-DskipTests",
         f"-Dsanderling.native={native}",
         # No jar of this build is left in the repository of the user.
         "-Dmaven.install.skip=true",
         f"-Dproject.build.outputTimestamp={moment:%Y-%m-%dT%H:%M:%SZ}",
         f"-DaltDeploymentRepository=dist::file://{repository}", "deploy"])
    settle(repository, moment)
    sbom.write(DIST / f"sanderling-{version()}-jvm.cdx.json", "sanderling-jvm", "sanderling-jni",
               "library")


def settle(repository: Path, moment: datetime) -> None:
    """Removes the client's tests, which only this build uses; dates and hashes all else."""
    for path in repository.rglob("*-tests.jar*"):
        path.unlink()
    for path in sorted(repository.rglob("maven-metadata.xml")):
        text = re.sub(r"<lastUpdated>\d+<", f"<lastUpdated>{moment:%Y%m%d%H%M%S}<",
                      path.read_text())
        path.write_text(text)
    for path in sorted(repository.rglob("*")):
        if path.is_file() and path.suffix[1:] not in HASHES:
            write_hashes(path)


def write_hashes(path: Path) -> None:
    """Writes the checksums of a file beside it, as Maven looks for them."""
    for name in HASHES:
        digest = hashlib.new(name, path.read_bytes()).hexdigest()
        path.with_name(f"{path.name}.{name}").write_text(digest)
