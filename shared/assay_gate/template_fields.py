"""Which fields a template needs, read from its syntax tree (SPEC S4.9, third check)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import jinja2
from jinja2 import meta, nodes

from assay_gate.prompt import template_environment

_LOADS = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


def needed_fields(sources: Mapping[str, str], name: str) -> dict[str, str]:
    """Each field that `name` or a template it includes prints or asks for, with the template that
    does. A field that a template tests with `is defined` or gives a `default` is not needed."""
    needed: dict[str, str] = {}
    assigned: set[str] = set()  # by the template itself, and so there for what it includes
    for part, tree in _trees(template_environment(sources), sources, name):
        guarded = set(_guarded(tree))
        for field in meta.find_undeclared_variables(tree) - guarded - assigned:
            needed.setdefault(field, part)
        assigned |= {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    return needed


def private_attributes(sources: Mapping[str, str], name: str) -> list[str]:
    """Attributes that the sandbox refuses when the template is rendered."""
    tree = template_environment(sources).parse(sources[name])
    return sorted({n.attr for n in tree.find_all(nodes.Getattr) if n.attr.startswith("_")})


def missing_includes(sources: Mapping[str, str], name: str) -> list[tuple[str, str]]:
    """(template, name) of all that `name` and what it includes load by a name that is not there;
    of a list of names one is enough, and `ignore missing` forgives."""
    missing = []
    for part, tree in _trees(template_environment(sources), sources, name):
        for node in tree.find_all(_LOADS):
            if getattr(node, "ignore_missing", False):
                continue
            try:
                given = getattr(node, "template").as_const()  # noqa: B009 - no type names it
            except nodes.Impossible:
                continue  # chosen when it is rendered
            names = [given] if isinstance(given, str) else list(given)
            if not any(one in sources for one in names):
                missing += [(part, str(one)) for one in names]
    return missing


def _trees(
    environment: jinja2.Environment, sources: Mapping[str, str], name: str
) -> Iterator[tuple[str, nodes.Template]]:
    pending, seen = [name], set()
    while pending:
        part = pending.pop()
        if part in seen or part not in sources:
            continue
        seen.add(part)
        tree = environment.parse(sources[part])
        yield part, tree
        pending += [other for other in meta.find_referenced_templates(tree) if other]


def _guarded(tree: nodes.Template) -> Iterator[str]:
    for node in tree.find_all((nodes.Test, nodes.Filter)):
        guards = ("defined", "undefined") if isinstance(node, nodes.Test) else ("default", "d")
        if node.name in guards and isinstance(node.node, nodes.Name):
            yield node.node.name
