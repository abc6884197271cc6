"""Pages of the Python package's public names, from its source and docstrings."""

from pathlib import Path

import griffe

PACKAGE = "sanderling"
# Modules that are not for users of the package.
HIDDEN = {"demo", "__main__"}


def write(search_path: Path, site: Path) -> list[dict[str, str]]:
    """Writes one page per public module and returns them for the nav."""
    package = griffe.load(PACKAGE, search_paths=[str(search_path)], allow_inspection=False)
    directory = site / "api" / "python"
    directory.mkdir(parents=True)
    pages = []
    documented: dict[str, str] = {}
    for module in sorted(modules_of(package), key=lambda module: module.path):
        members = [member for member in module.members.values() if is_public(member, module)]
        if members:
            path = module.path.replace("._", ".")
            name = f"{path.removeprefix(PACKAGE + '.')}.md"
            (directory / name).write_text(module_page(module, members))
            pages.append({path: f"api/python/{name}"})
            documented |= {member.path: f"{name}#{member.name.lower()}" for member in members}
    (directory / "index.md").write_text(package_page(package, documented))
    return [{PACKAGE: "api/python/index.md"}, *pages]


def modules_of(package: griffe.Module) -> list[griffe.Module]:
    """Returns the package's modules, at any depth."""
    found = []
    for name, module in package.modules.items():
        if name not in HIDDEN and not module.is_alias:
            found += [module, *modules_of(module)]
    return found


def is_public(member: griffe.Object | griffe.Alias, module: griffe.Module) -> bool:
    """Returns whether a member of a module is its own and for users."""
    if member.is_alias or member.name.startswith("_"):
        return False
    if module.exports is not None:
        return member.name in [str(name) for name in module.exports]
    return member.is_class or member.is_function or bool(member.docstring)


def package_page(package: griffe.Module, documented: dict[str, str]) -> str:
    """Returns the page of what `import sanderling` brings."""
    lines = ["# Python: `sanderling`", "", docstring(package), ""]
    lines += ["| name | what it is |", "| --- | --- |"]
    for name in sorted(package.exports or [], key=lambda name: str(name).lower()):
        member = package.members.get(str(name))
        if member is None:
            continue
        target = member.final_target if member.is_alias else member
        what = docstring(target).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        link = documented.get(target.path)
        lines.append(f"| {f'[`{name}`]({link})' if link else f'`{name}`'} | {what} |")
    return "\n".join(lines) + "\n"


def module_page(module: griffe.Module, members: list[griffe.Object]) -> str:
    """Returns one module's page."""
    lines = [f"# `{module.path.replace('._', '.')}`", "", docstring(module), ""]
    for member in members:
        if member.is_class:
            lines += class_section(member)
        elif member.is_function:
            lines += function_section(member, 2)
        else:
            lines += [f"## {member.name}", "", *fenced(value(member)), docstring(member), ""]
    return "\n".join(lines) + "\n"


def class_section(cls: griffe.Class) -> list[str]:
    """Returns the section of a class, with its public members."""
    bases = ", ".join(str(base) for base in cls.bases)
    lines = [f"## {cls.name}", ""]
    lines += fenced(f"class {cls.name}{f'({bases})' if bases else ''}")
    lines += [docstring(cls), ""]
    for member in members_of(cls).values():
        if member.is_alias or member.name.startswith("_"):
            continue
        if member.is_function:
            lines += function_section(member, 3, cls.name)
        elif member.is_attribute:
            lines += [f"- `{value(member)}`" + (f": {flat(member)}" if docstring(member) else "")]
    return [*lines, ""]


def members_of(cls: griffe.Class) -> dict[str, griffe.Object | griffe.Alias]:
    """Returns a class's members, with those of its bases that have no section of their own."""
    inherited = {name: alias.final_target for name, alias in cls.inherited_members.items()}
    for name, member in list(inherited.items()):
        if member.parent is None or is_public(member.parent, member.module):
            del inherited[name]
    return {**cls.members, **inherited}


def function_section(function: griffe.Function, level: int, owner: str = "") -> list[str]:
    """Returns the section of a function: its signatures and what it does."""
    title = f"{owner}.{function.name}" if owner else function.name
    lines = [f"{'#' * level} {title}", ""]
    shown = [overload for overload in function.overloads or []] or [function]
    lines += fenced("\n".join(signature(one) for one in shown))
    return [*lines, docstring(function), ""]


def signature(function: griffe.Function) -> str:
    """Returns a function's signature, on several lines when it is long."""
    parts: list[str] = []
    is_keyword = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not is_keyword:
            is_keyword = True
            parts.append("*")
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
        is_keyword |= kind is griffe.ParameterKind.var_positional
        text = stars.get(kind, "") + parameter.name
        text += f": {parameter.annotation}" if parameter.annotation else ""
        has_default = parameter.default is not None and kind not in stars
        equals = " = " if parameter.annotation else "="
        parts.append(text + (f"{equals}{parameter.default}" if has_default else ""))
    keyword = "async def" if "async" in function.labels else "def"
    ends = f") -> {function.returns}" if function.returns else ")"
    line = f"{keyword} {function.name}({', '.join(parts)}{ends}"
    if len(line) <= 88:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{keyword} {function.name}(\n{inner}{ends}"


def value(attribute: griffe.Attribute) -> str:
    """Returns an attribute as it is declared."""
    text = attribute.name + (f": {attribute.annotation}" if attribute.annotation else "")
    is_short = attribute.value is not None and len(str(attribute.value)) < 60
    return text + (f" = {attribute.value}" if is_short else "")


def docstring(item: griffe.Object) -> str:
    """Returns an item's docstring as a page has it."""
    return item.docstring.value.strip() if item.docstring else ""


def flat(item: griffe.Object) -> str:
    """Returns a docstring on one line."""
    return " ".join(docstring(item).split())


def fenced(code: str) -> list[str]:
    """Returns code as a block of a page. It shows a declaration and is no example."""
    return ["```python", code, "```", ""]
