"""A Rust compiler for aarch64, and the files of such a machine, both from Debian's packages.

Where the usual toolchain has the standard library of aarch64 (`rustup target add`), it compiles.
Elsewhere the compiler and the standard libraries of both machines are those of Debian sid, which
moves: it takes what is there and pins no version. Nothing is installed: the packages are unpacked
into target/aarch64-rust and target/aarch64-root, and no script of theirs runs.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tree import ROOT

TRIPLE = "aarch64-unknown-linux-gnu"
RUST = Path(os.environ.get("AARCH64_RUST", ROOT / "target" / "aarch64-rust"))
# What programs of that machine have at /, by what they need: packages of this machine's Debian.
MACHINE_PACKAGES = {
    "root": ["libc6:arm64", "libgcc-s1:arm64"],
    "python": ["libc6:arm64", "libgcc-s1:arm64", "python3-minimal:arm64",
               "libpython3-stdlib:arm64"],
    "java": ["libc6:arm64", "libgcc-s1:arm64", "default-jre-headless:arm64"],
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# What a compiler needs that links with the linker of this machine.
COMPILER = re.compile(r"rustc|libstd-rust-.*|libllvm\d+|libc6|libgcc-s1|libstdc\+\+6|zlib1g"
                      r"|libzstd1|libxml2.*|libz3-.*|libffi8|libedit2|libtinfo6|libbsd0|libmd0"
                      r"|liblzma5|libicu\d+")


class MissingError(Exception):
    """What this machine lacks; the text names it."""


def compiler() -> Path | None:
    """Returns the compiler to use, made if need be; `None` is the usual one."""
    shown = subprocess.run(["rustc", "--print", "target-libdir", "--target", TRIPLE],
                           cwd=ROOT, capture_output=True, text=True)
    if shown.returncode == 0 and Path(shown.stdout.strip()).is_dir():
        return None
    wrapper = RUST / "rustc"
    if not wrapper.exists():
        with Apt("sid", RUST) as apt:
            apt.unpack(apt.plan(["rustc", "libstd-rust-dev:amd64", "libstd-rust-dev:arm64"]),
                       is_of_compiler)
        loader = RUST / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
        new = wrapper.with_suffix(".new")
        # No variable: what the compiler starts, such as the linker, has this machine's libraries.
        new.write_text(f'#!/bin/sh\nexec {loader} --library-path {loader.parent} '
                       f'{RUST}/usr/bin/rustc --sysroot {RUST}/usr "$@"\n')
        new.chmod(0o755)
        new.rename(wrapper)
    return wrapper


def is_of_compiler(name: str, machine: str) -> bool:
    """Returns whether a package that rustc depends on is used here."""
    if machine == "arm64":
        return name == "libstd-rust-dev"
    return COMPILER.fullmatch(name) is not None


def machine_root(kind: str) -> Path:
    """Returns the root of an aarch64 machine for programs of a kind, made if need be."""
    root = ROOT / "target" / f"aarch64-{kind}"
    stamp = root / ".packages"
    wanted = " ".join(MACHINE_PACKAGES[kind])
    if not stamp.exists() or stamp.read_text() != wanted:
        with Apt(suite(), root) as apt:
            apt.unpack(apt.plan(MACHINE_PACKAGES[kind]), lambda _name, machine: machine != "amd64")
        stamp.write_text(wanted)
    return root


def emulator(kind: str = "root") -> list[str]:
    """Returns the first words of a command that runs a program of aarch64 in a root of a kind."""
    for name in ("qemu-aarch64", "qemu-aarch64-static"):
        if path := shutil.which(name):
            return [path, "-L", str(machine_root(kind))]
    raise MissingError("qemu-aarch64 is missing: apt install qemu-user")


def suite() -> str:
    """Returns the release of Debian that runs here."""
    fields = Path("/etc/os-release").read_text()
    named = re.search(r"^VERSION_CODENAME=(\w+)$", fields, re.MULTILINE)
    if not named:
        raise MissingError("this machine's Debian has no release: /etc/os-release")
    return named[1]


def mirror() -> str:
    """Returns the mirror of Debian that this machine's apt uses."""
    if not shutil.which("apt-get") or not KEYRING.exists():
        raise MissingError("apt and Debian's keys are missing: the packages come from Debian")
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT) $(CODENAME)",
         "Created-By: Packages"], capture_output=True, text=True)
    for line in shown.stdout.splitlines():
        match line.split():
            case [address, "Debian", "main", name] if "-" not in name:
                return address
    raise MissingError("apt has no Debian mirror: run apt-get update")


class Apt:
    """An apt apart from the machine's: another release, two architectures, no installation."""

    def __init__(self, release: str, folder: Path):
        self.folder = folder
        self.release = release
        self.state = folder.with_name(f"{folder.name}.apt")

    def __enter__(self) -> "Apt":
        """Reads the lists of the release."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("lists/partial", "cache/archives/partial", "packages"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        (self.state / "status").touch()
        (self.state / "debian.sources").write_text(
            f"Types: deb\nURIs: {mirror()}\nSuites: {self.release}\nComponents: main\n"
            f"Signed-By: {KEYRING}\n")
        print(f"    reading what Debian {self.release} has ...", flush=True)
        try:
            self.apt("update")
        except MissingError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_unused):
        """Removes the lists and the packages; what they held is unpacked."""
        shutil.rmtree(self.state, ignore_errors=True)

    def apt(self, *arguments: str, **more) -> str:
        """Runs apt-get; returns what it prints."""
        settings = {
            "APT::Architecture": "amd64", "APT::Architectures": "amd64,arm64",
            "Dir::State": self.state, "Dir::State::status": self.state / "status",
            "Dir::Cache": self.state / "cache", "Dir::Etc::SourceList":
            self.state / "debian.sources", "Dir::Etc::SourceParts": "-",
            "APT::Sandbox::User": "root", "Acquire::Languages": "none",
            "APT::Install-Recommends": "false",
        }
        words = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items()),
                 *arguments]
        ran = subprocess.run(words, capture_output=True, text=True, env=os.environ
                             | {"LC_ALL": "C.UTF-8"}, **more)
        if ran.returncode:
            raise MissingError(f"apt-get {arguments[0]} of Debian {self.release} failed: "
                               f"{ran.stderr.strip()[-500:]}")
        return ran.stdout

    def plan(self, packages: list[str]) -> list[tuple[str, str]]:
        """Returns the names and machines of packages and of all that they depend on."""
        shown = self.apt("--simulate", "install", *packages)
        return re.findall(r"^Inst (\S+?)(?::\w+)? \(.* \[(\w+)\]\)", shown, re.MULTILINE)

    def unpack(self, planned: list[tuple[str, str]], is_used) -> None:
        """Downloads the packages that are used, and unpacks them into the folder."""
        names = [f"{name}:{machine}" if machine != "all" else name
                 for name, machine in planned if is_used(name, machine)]
        print(f"    downloading {len(names)} packages of Debian {self.release} ...", flush=True)
        place = self.state / "packages"
        self.apt("download", *names, cwd=place)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(place.glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", path, self.folder], check=True)
        for path in [path for path in self.folder.rglob("*") if path.is_symlink()]:
            target = os.readlink(path)
            if target.startswith("/"):
                # It means the file in this folder, not the one of this machine.
                path.unlink()
                path.symlink_to(os.path.relpath(f"{self.folder}{target}", path.parent))
