"""The Debian package: the program, its manual, systemd units and their settings."""

import shutil
import textwrap
from email.utils import formatdate
from pathlib import Path

import archives
import program
from tree import DIST, GLIBC, HERE, WORK, epoch, project, run, version

ARCHITECTURE = "amd64"
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def make() -> None:
    """Makes the package with dpkg-deb."""
    root = WORK / "debian"
    shutil.rmtree(root, ignore_errors=True)
    program.lay_out(root / "usr")
    documents = root / "usr/share/doc/sanderling"
    (documents / "LICENSE").unlink()
    completions = root / "usr/share/zsh"
    (completions / "vendor-completions").mkdir()
    (completions / "site-functions/_sanderling").rename(
        completions / "vendor-completions/_sanderling")
    (completions / "site-functions").rmdir()
    put_text(documents / "copyright", copyright_text())
    (documents / "changelog.gz").write_bytes(archives.compress(
        (documents / "CHANGELOG.md").read_bytes()))
    (documents / "CHANGELOG.md").unlink()
    (documents / "changelog.Debian.gz").write_bytes(archives.compress(change_text().encode()))
    for unit in sorted((HERE / "systemd").glob("*.service")):
        program.place(unit, root / "lib/systemd/system" / unit.name, 0o644)
    program.place(HERE / "systemd/sanderling.sysusers", root / "usr/lib/sysusers.d/sanderling.conf",
                  0o644)
    settings = sorted((HERE / "etc").iterdir())
    for file in settings:
        program.place(file, root / "etc/sanderling" / file.name, 0o644)
    control = root / "DEBIAN"
    put_text(control / "control", control_text(root))
    put_text(control / "conffiles", "".join(f"/etc/sanderling/{file.name}\n" for file in settings))
    for script in SCRIPTS:
        text = (HERE / "maintainer-scripts" / script).read_text()
        put_text(control / script, text.replace("@VERSION@", version()))
        (control / script).chmod(0o755)
    settle(root)
    DIST.mkdir(parents=True, exist_ok=True)
    run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root),
         str(DIST / f"sanderling_{version()}_{ARCHITECTURE}.deb")])


def settle(root: Path) -> None:
    """Gives directories and files the modes that Debian has for them."""
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        elif not path.stat().st_mode & 0o100:
            path.chmod(0o644)


def put_text(path: Path, text: str) -> None:
    """Writes a file that every user may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)


def control_text(root: Path) -> str:
    """Returns the description of the package."""
    about = project()
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024 + 1
    long = textwrap.indent(textwrap.fill(
        f"{about['summary']}. The program has the servers (namenode, datanode, manager, S3 "
        "gateway) and the tools. The package brings a systemd unit for the namenode, the datanode "
        "and the gateway; none is enabled. SIGTERM, and so systemctl stop, drains a datanode: its "
        "blocks move to others before it ends.", 76), " ")
    return (
        "Package: sanderling\n"
        f"Version: {version()}\n"
        f"Architecture: {ARCHITECTURE}\n"
        f"Maintainer: {about['maintainer']} <{about['email']}>\n"
        f"Installed-Size: {size}\n"
        f"Depends: libc6 (>= {GLIBC}), systemd | systemd-standalone-sysusers | systemd-sysusers\n"
        "Section: database\n"
        "Priority: optional\n"
        f"Homepage: {about['homepage']}\n"
        f"Bugs: {about['issues']}\n"
        f"Vcs-Browser: {about['repository']}\n"
        f"Security-Contact: {about['security']}\n"
        "Description: datastore that moves data off spot machines before they die\n"
        f"{long}\n"
    )


def copyright_text() -> str:
    """Returns the copyright file; the texts of what is linked are beside it."""
    about = project()
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: Sanderling\n"
        f"Upstream-Contact: {about['security']} (security), {about['issues']} (issues)\n"
        f"Source: {about['repository']}\n"
        "\n"
        "Files: *\n"
        f"Copyright: {about['maintainer']}\n"
        f"License: {about['licence']}\n"
        " On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n"
        " What the program is linked with, and the texts of those licences, is in\n"
        " /usr/share/doc/sanderling/THIRD-PARTY.txt.\n"
    )


def change_text() -> str:
    """Returns the change log in Debian's format: one entry, which names the other file."""
    about = project()
    date = formatdate(epoch(), localtime=False, usegmt=False).replace("-0000", "+0000")
    return (
        f"sanderling ({version()}) stable; urgency=medium\n\n"
        "  * See changelog.gz, and docs/UPGRADING.md before an upgrade.\n\n"
        f" -- {about['maintainer']} <{about['email']}>  {date}\n"
    )
