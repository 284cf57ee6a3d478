"""What a module imports, read from its syntax: nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """A module of a tree: its dotted name, file, and dotted names of what it imports.

    `from a import b` counts as both a and a.b, since b may be a module.
    """

    name: str
    path: Path
    tree: ast.Module
    imports: frozenset[str]

    @property
    def package(self) -> str:
        """The library or service it belongs to: assay, assay_gate, services.ingest, …"""
        parts = self.name.split(".")
        return ".".join(parts[:2]) if parts[0] == "services" and len(parts) > 1 else parts[0]

    def imports_under(self, *names: str) -> list[str]:
        """Imports that are one of the names, or lie below one."""
        return sorted(i for i in self.imports if any(under(i, name) for name in names))


def under(dotted: str, name: str) -> bool:
    return dotted == name or dotted.startswith(f"{name}.")


def modules(root: Path) -> Iterator[Module]:
    """Every Python module of the product: shared, services and deploy, tests left out."""
    for folder, prefix in (("shared", ""), ("services", "services."), ("deploy", "deploy.")):
        for path in sorted((root / folder).rglob("*.py")):
            relative = path.relative_to(root / folder).with_suffix("")
            parts = [part for part in relative.parts if part != "__init__"]
            name = (prefix + ".".join(parts)).rstrip(".")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            yield Module(name, path, tree, frozenset(_imports(tree, package)))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                kept = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*kept, base]) if base else ".".join(kept)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _is_dynamic_import(node.func):
            yield from (
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            )


def _is_dynamic_import(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")
