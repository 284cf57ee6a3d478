"""The templates of a process and what they include, all from its own folder (SPEC S4.9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import jinja2

from assay_gate.hints import hint
from assay_gate.process_findings import Findings
from assay_gate.process_folder import Folder
from assay_gate.prompt import PromptError, compile_templates
from assay_gate.template_fields import missing_includes

SUFFIXES = (".jinja2", ".j2", ".jinja")


def template_files(files: Folder, named: Iterable[str]) -> dict[str, str]:
    """File by the name that a template may use for it: from the folder, from `template_dir` or
    another folder above a template of config.yaml, or beside one without any folder."""
    named = [name for name in named if name in files.files]
    beside = {PurePosixPath(name).parent for name in named}
    above = beside.union(*(folder.parents for folder in beside))
    candidates = [*named, *(name for name in files.files if name.endswith(SUFFIXES))]
    found = {name: name for name in candidates}
    for folder in sorted(above, key=str, reverse=True):
        for name in candidates:
            if PurePosixPath(name).is_relative_to(folder):
                found.setdefault(PurePosixPath(name).relative_to(folder).as_posix(), name)
    return found


def read_templates(
    files: Folder, named: Mapping[str, str], found: Findings
) -> Mapping[str, jinja2.Template]:
    """Every template under each of its names, compiled. `named` says which key of config.yaml
    names a file; what is missing or does not compile goes to `found`."""
    for file, key in named.items():
        with found.caught():
            files.text(file, key)
    sources: dict[str, str] = {}
    known = template_files(files, named)
    for name, file in known.items():
        with found.caught():
            sources[name] = files.text(file)
    while True:
        try:
            compiled = compile_templates(sources)
            break
        except PromptError as error:
            name = next(n for n in sources if str(error).startswith(f"{n}: "))
            found.mistake(known[name], "", str(error).removeprefix(f"{name}: "))
            sources = {n: text for n, text in sources.items() if known[n] != known[name]}
    for file in named:
        for part, name in missing_includes(sources, file):
            if name not in known:  # one that does not compile was named already
                message = "includes what is no template of the folder" + hint(name, known)
                found.mistake(known[part], name, message)
    return compiled
