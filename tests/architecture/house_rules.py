"""The house rules of DESIGN §1, each a function from a tree to its breaches.

A breach is one line that names the file and what is wrong with it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.architecture.imports import Module, modules, under

Rule = Callable[[Path], list[str]]

OURS = ("assay", "assay_gate", "assay_runtime", "services", "deploy", "tests")
ARROWS: dict[str, tuple[str, ...]] = {
    "assay": (),
    "assay_gate": ("assay",),
    "assay_runtime": ("assay", "assay_gate"),
    "services": ("assay", "assay_gate", "assay_runtime"),
}
OUTSIDE = (
    "aiohttp", "aiokafka", "asyncpg", "boto3", "confluent_kafka", "fastapi", "faststream", "ftplib",
    "http", "httpx", "httpx_aiohttp", "prometheus_client", "psycopg", "requests", "smtplib",
    "socket", "sqlite3", "ssl", "starlette", "structlog", "uvicorn", "urllib.request",
)  # fmt: skip
ADAPTERS_ONLY = ("aiohttp", "aiokafka", "asyncpg", "httpx", "httpx_aiohttp", "socket", "sqlite3")
# asteval cannot bound the time of one multiplication; a process can be killed (DESIGN §4).
GATE_EXCEPTIONS = {"assay_gate.rules.sandbox": ("subprocess",)}
SDK_SPEAKS_KAFKA = ("assay.client", "assay.connection", "assay.outcomes")
SDK_IO = (*SDK_SPEAKS_KAFKA, "assay.batch", "assay.cli")
IMPURE = (
    *OUTSIDE, "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil",
    "signal", "subprocess", "tempfile", "threading", "time",
)  # fmt: skip
PURE_LIBRARIES = ("jinja2", "jsonschema_rs", "pydantic")
IMPURE_CALLS = {"open", "print", "input", "eval", "exec"}
IMPURE_METHODS = {"now", "utcnow", "today", "uuid1", "uuid4"}
FACES = ("__init__.py", "__main__.py", "app.py", "handler.py", "settings.py")
DRAWERS = re.compile(r"_?(utils?|commons?|helpers?|misc|miscellaneous|stuff)")
MODULE_LINES = 200


def import_arrows(root: Path) -> list[str]:
    """service → runtime → gate → SDK, never back, never service → service."""
    found = []
    for module in modules(root):
        top = module.name.split(".")[0]
        if top == "deploy":
            continue
        allowed = (*ARROWS[top], module.package)
        found += [
            f"{module.name} imports {name}"
            for name in module.imports_under(*OURS)
            if not any(under(name, package) for package in allowed)
        ]
    return found


def gate_is_pure(root: Path) -> list[str]:
    """The gate touches no network, store or process but its sandbox's."""
    return [
        f"{module.name} imports {name}"
        for module in modules(root)
        if module.package == "assay_gate"
        for name in module.imports_under(*OUTSIDE, "subprocess")
        if name not in GATE_EXCEPTIONS.get(module.name, ())
    ]


def sdk_speaks_to_kafka_behind_its_client(root: Path) -> list[str]:
    """Elsewhere in the SDK only a `<thing>_kafka` module knows the driver."""
    return [
        f"{module.name} imports {name}"
        for module in modules(root)
        if module.package == "assay"
        and module.name not in SDK_SPEAKS_KAFKA
        and not module.name.endswith("_kafka")
        for name in module.imports_under("aiokafka")
    ]


def _is_domain(module: Module) -> bool:
    return bool(re.match(r"services\.\w+\.domain(\.|$)", module.name))


def domain_imports_are_pure(root: Path) -> list[str]:
    """Standard library without IO, pure libraries, the SDK without its client, the gate, and the
    domain's own modules."""
    found = []
    for module in modules(root):
        if not _is_domain(module):
            continue
        domain = f"{module.package}.domain"
        for name in sorted(module.imports - {"services", module.package}):
            ours = under(name, domain) or (
                any(under(name, package) for package in ("assay", "assay_gate"))
                and not any(under(name, io) for io in SDK_IO)
            )
            standard = name.split(".")[0] in sys.stdlib_module_names
            library = any(under(name, pure) for pure in PURE_LIBRARIES)
            impure = any(under(name, io) for io in IMPURE)
            if impure or not (ours or standard or library):
                found.append(f"{module.name} imports {name}")
    return found


def domain_calls_are_pure(root: Path) -> list[str]:
    """No clock, randomness or IO except as arguments."""
    found = []
    for module in modules(root):
        if not _is_domain(module):
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name) and called.id in IMPURE_CALLS | IMPURE_METHODS:
                found.append(f"{module.name}:{node.lineno} calls {called.id}()")
            elif isinstance(called, ast.Attribute) and called.attr in IMPURE_METHODS:
                found.append(f"{module.name}:{node.lineno} calls .{called.attr}()")
    return found


def outside_systems_behind_adapters(root: Path) -> list[str]:
    """In a service only app.py and adapters/ know a driver; an adapter is named for its thing."""
    return [
        f"{module.name} imports {name}"
        for module in modules(root)
        if module.package.startswith("services.")
        and not re.fullmatch(r"services\.\w+\.(app|adapters\..*)", module.name)
        for name in module.imports_under(*ADAPTERS_ONLY)
    ]


def services_show_the_same_faces(root: Path) -> list[str]:
    """app, handler, domain, settings, __main__; and a docstring that says what goes in and out."""
    found = []
    for folder in sorted(path for path in (root / "services").iterdir() if path.is_dir()):
        if folder.name == "__pycache__":
            continue
        found += [
            f"services/{folder.name} has no {face}"
            for face in FACES
            if not (folder / face).is_file()
        ]
        if not (folder / "domain.py").is_file() and not (folder / "domain").is_dir():
            found.append(f"services/{folder.name} has no domain.py or domain/")
        found += _docstring_breaches(folder)
        found += _app_breaches(folder)
    return found


def _docstring_breaches(folder: Path) -> Iterator[str]:
    init = folder / "__init__.py"
    said = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) if init.is_file() else ""
    for word in ("Consumes", "Produces", "Guarantees"):
        if word.lower() not in (said or "").lower():
            yield f"services/{folder.name}/__init__.py does not say what it {word.lower()}"


def _app_breaches(folder: Path) -> Iterator[str]:
    app = folder / "app.py"
    if not app.is_file():
        return
    names: dict[str, ast.expr | None] = {}
    for node in ast.parse(app.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign):
            names |= {t.id: node.value for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node.value
    for name in ("NAME", "CONSUMES", "PRODUCES", "build"):
        if name not in names:
            yield f"services/{folder.name}/app.py defines no {name}"
    value = names.get("NAME")
    if value is not None and getattr(value, "value", None) != folder.name:
        yield f"services/{folder.name}/app.py: NAME is not the folder's"


def no_drawers(root: Path) -> list[str]:
    """A module named for nothing in particular collects everything."""
    return [
        f"{path.relative_to(root)} is a drawer"
        for folder in ("shared", "services", "deploy", "tests")
        for path in sorted((root / folder).rglob("*"))
        if (path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))))
        and DRAWERS.fullmatch(path.stem)
    ]


def long_modules(root: Path) -> dict[str, int]:
    """Modules of more than MODULE_LINES lines that are not blank."""
    found = {}
    for module in modules(root):
        text = module.path.read_text(encoding="utf-8")
        lines = sum(1 for line in text.splitlines() if line.strip())
        if lines > MODULE_LINES:
            found[module.path.relative_to(root).as_posix()] = lines
    return found


def modules_are_short(root: Path, exceptions: Mapping[str, str]) -> list[str]:
    """Every long module is an exception with a reason, and no exception outlives its need."""
    long = long_modules(root)
    return [
        *(f"{name} has {lines} lines" for name, lines in long.items() if name not in exceptions),
        *(f"{name} is no longer too long" for name in exceptions if name not in long),
    ]
