"""The program itself with its manual pages, completions and licences, and the archive of them."""

import shutil
import subprocess
import sys
from pathlib import Path

import archives
import sbom
from tree import DIST, HERE, MACHINE, PROGRAM, ROOT, TARGET, TRIPLE, WORK, build_crate, run, version

# Where each shell looks for completions, below PREFIX/share.
COMPLETIONS = {
    "bash": "bash-completion/completions/sanderling",
    "zsh": "zsh/site-functions/_sanderling",
    "fish": "fish/vendor_completions.d/sanderling.fish",
}

# What a package has beside the pages, in share/doc/sanderling.
TEXTS = ("LICENSE", "README.md", "CHANGELOG.md")


def pages() -> list[str]:
    """Returns the pages, and what Prometheus and Grafana read, by their paths in the checkout.

    Packages keep these paths below share/doc/sanderling, so that the links between them hold.
    """
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.is_file())


def build() -> Path:
    """Builds the program against the old glibc; returns where it is."""
    build_crate(*PROGRAM)
    return stripped(TARGET / TRIPLE / "release" / "sanderling")


def stripped(built: Path) -> Path:
    """Copies a program without its symbols, which are half of it; returns where."""
    out = WORK / "stripped" / built.name
    place(built, out, 0o755)
    run(["strip", "--strip-all" if out.suffix != ".so" else "--strip-unneeded", str(out)])
    return out


def lay_out(prefix: Path, built: Path | None = None, emulator: tuple[str, ...] = ()) -> None:
    """Puts the program and what belongs to it below a prefix, as in /usr.

    A program of another machine is given with the command that runs it here.
    """
    built = built or build()
    shutil.rmtree(prefix, ignore_errors=True)
    place(built, prefix / "bin" / "sanderling", 0o755)
    pages = WORK / "man"
    shutil.rmtree(pages, ignore_errors=True)
    run([*emulator, str(built), "man", str(pages)])
    for page in sorted(pages.iterdir()):
        path = prefix / "share" / "man" / "man1" / f"{page.name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archives.compress(page.read_bytes()))
        path.chmod(0o644)
    for shell, name in COMPLETIONS.items():
        script = subprocess.run([*emulator, built, "completions", shell], capture_output=True,
                                check=True)
        path = prefix / "share" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(script.stdout)
        path.chmod(0o644)
    documents = prefix / "share" / "doc" / "sanderling"
    place_pages(documents)
    place(third_party(), documents / "THIRD-PARTY.txt", 0o644)
    for folder in [prefix, *(path for path in prefix.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)


def place_pages(documents: Path) -> None:
    """Puts the texts and the pages into a directory."""
    for name in (*TEXTS, *pages()):
        place(ROOT / name, documents / name, 0o644)


def third_party() -> Path:
    """Writes the licences of what the program is linked with; returns where."""
    out = WORK / "THIRD-PARTY.txt"
    run([sys.executable, "scripts/licences.py", "write", "sanderling-cli", str(out)])
    return out


def place(source: Path, target: Path, mode: int) -> None:
    """Copies a file with a mode, and makes its directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def make(machine: str = MACHINE, built: Path | None = None,
         emulator: tuple[str, ...] = ()) -> None:
    """Makes the archive of the program and its bill of materials."""
    name = f"sanderling-{version()}-{machine}"
    folder = WORK / "tarball"
    lay_out(folder, built, emulator)
    place(HERE / "install.sh", folder / "install.sh", 0o755)
    for unit in sorted((HERE / "systemd").iterdir()):
        place(unit, folder / "share" / "doc" / "sanderling" / "systemd" / unit.name, 0o644)
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    DIST.mkdir(parents=True, exist_ok=True)
    archives.pack(folder, DIST / f"{name}.tar.gz", f"{name}/")
    sbom.write(DIST / f"{name}.cdx.json", "sanderling", "sanderling-cli", "application")
