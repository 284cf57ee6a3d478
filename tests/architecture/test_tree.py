"""The tree as a whole: no traces of a workplace, a lock without addresses, every setting
documented, and an SDK that stays light."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.imports import Module, modules

REPO = Path(__file__).parents[2]

# Written so that this file does not match itself.
PLACES = re.compile(
    r"(?<![\w.~}-])/(?:work|root|home/[a-z]+|Users/[A-Za-z]+|tmp/(?:plan|bash_jobs))(?:/|\b)(?!-)"
)
HOSTS = re.compile(
    r"https?://(?:[^/\s\"'`>)]*\.)?"
    r"(?:(?:artifactory|nexus|devpi|mirror|proxy|registry)s?[.\-:]|[\w.-]+\.(?:internal|corp|lan)\b"
    r"|10\.\d+\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)"
)
INDEX = re.compile(r"--(?:extra-)?(?:index.url|find.links|trusted.host)\b")
SETTING = re.compile(r"\bASSAY_[A-Z]+__[A-Z0-9_]*[A-Z0-9]\b")

SDK_REQUIRES = {"aiokafka", "coincurve", "pycryptodome", "pydantic", "rich", "typer"}
SDK_IMPORTS = {"Crypto", "aiokafka", "coincurve", "pydantic", "rich", "typer"}
# With everything these need in turn. A longer list is a decision, not an accident.
SDK_CLOSURE = SDK_REQUIRES | {
    "annotated-doc",
    "annotated-types",
    "async-timeout",
    "cramjam",
    "markdown-it-py",
    "mdurl",
    "packaging",
    "pydantic-core",
    "pygments",
    "shellingham",
    "typing-extensions",
    "typing-inspection",
}


def tracked() -> list[Path]:
    """Files of the repository, or of an unpacked archive of it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [REPO / name for name in listed.stdout.splitlines()]
    else:
        hidden = {".venv", ".git", "build", "data", "__pycache__"}
        found = [p for p in REPO.rglob("*") if not hidden & set(p.relative_to(REPO).parts)]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def traces(files: Iterable[Path]) -> list[str]:
    """Lines that name this or that machine, or where its packages come from."""
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if any(pattern.search(line) for pattern in (PLACES, HOSTS, INDEX)):
                found.append(f"{path.name}:{number}: {line.strip()[:80]}")
    return found


def lock_breaches(text: str) -> list[str]:
    """Addresses in a lock, and requirements without a version or a hash."""
    found = [line for line in text.splitlines() if "://" in line or line.startswith("-")]
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    found += [
        block.splitlines()[0]
        for block in blocks
        if not block.startswith("#") and ("==" not in block or "--hash=sha256:" not in block)
    ]
    return found


def undocumented(texts: Iterable[str], table: str) -> set[str]:
    used = {name for text in texts for name in SETTING.findall(text)}
    return {name for name in used if f"`{name.removesuffix('_FILE')}`" not in table}


def closure(distribution: str) -> set[str]:
    """Everything that installing a distribution brings along here, itself left out."""
    seen: set[str] = set()
    open_ends = [(distribution, frozenset[str]())]
    while open_ends:
        name, extras = open_ends.pop()
        for line in requires(name) or ():
            needed = Requirement(line)
            if needed.marker and not any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                continue
            key = canonicalize_name(needed.name)
            if key not in seen:
                seen.add(key)
                open_ends.append((key, frozenset(needed.extras)))
    return seen


def third_party(found: Iterable[Module]) -> set[str]:
    tops = {name.split(".")[0] for module in found for name in module.imports}
    return tops - set(sys.stdlib_module_names) - {"assay", ""}


def test_the_tree_has_no_trace_of_a_workplace() -> None:
    files = tracked()
    assert len(files) > 200
    assert traces(files) == []


@pytest.mark.parametrize(
    "line",
    [
        'DATA = "/' + 'work/main/data"',
        "see /" + "root/notes",
        "cd /" + "home/alice/src",
        "pip install --" + "index-url https://pypi.example/simple",
        "https://" + "nexus.example.org/repository/pypi",
        "http://" + "10.0.3.7:8081/simple",
        "https://pypi." + "mirror.example.org/simple",
        "https://build.example." + "internal/x",
    ],
)
def test_a_planted_trace_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(f"first\n{line}\n", encoding="utf-8")
    assert traces([tmp_path / "x.md"])


@pytest.mark.parametrize(
    "line",
    ["https://a.example/root", "the root/leaf hash", "--no-emit-" + "index-url", "~/wo" + "rk/x",
     "http://127.0.0.1:8080/score", "https://json-schema.org/draft/2020-12/schema", "$HOME/work"],
)  # fmt: skip
def test_harmless_lines_are_not_traces(line: str, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(line, encoding="utf-8")
    assert traces([tmp_path / "x.md"]) == []


def test_the_lock_has_hashes_and_no_addresses() -> None:
    assert lock_breaches((REPO / "requirements.lock").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "lock",
    [
        "--index" + "-url https://pypi.example\na==1 \\\n    --hash=sha256:00\n",
        "a==1\n",
        "a>=1 \\\n    --hash=sha256:00\n",
        "a @ https://host/a.whl \\\n    --hash=sha256:00\n",
        "a==1 \\\n    --hash=sha256:00\nb==2\n",
    ],
)
def test_a_bad_lock_is_found(lock: str) -> None:
    assert lock_breaches(lock)


def test_every_setting_is_documented() -> None:
    """Each ASSAY_… that code, commands or documents name is a row of SETTINGS.md."""
    files = [path for path in tracked() if "tests" not in path.relative_to(REPO).parts]
    texts = [
        path.read_text(encoding="utf-8")
        for path in files
        if path.suffix in (".py", ".md", ".yaml", ".toml", "") and path.name != "SETTINGS.md"
    ]
    table = (REPO / "SETTINGS.md").read_text(encoding="utf-8")
    assert undocumented(texts, table) <= {"ASSAY_SECTION__KEY"}


def test_an_undocumented_setting_is_found() -> None:
    table = "| `ASSAY_KAFKA__LOG` |"
    assert undocumented(['x = "ASSAY_KAFKA__LOG" "ASSAY_SIGNER__KEY"'], table) == {
        "ASSAY_SIGNER__KEY"
    }
    assert undocumented(["ASSAY_KAFKA__LOG_FILE and ASSAY_SIGNER__<KEY>"], table) == set()


def test_the_sdk_declares_few_dependencies() -> None:
    project = tomllib.loads((REPO / "shared/pyproject.toml").read_text(encoding="utf-8"))
    declared = {Requirement(line).name for line in project["project"]["dependencies"]}
    assert declared == SDK_REQUIRES


def test_the_sdk_imports_what_it_declares_and_nothing_else() -> None:
    assert third_party(m for m in modules(REPO) if m.package == "assay") == SDK_IMPORTS


def test_the_sdks_closure_stays_small() -> None:
    assert closure("assay") <= SDK_CLOSURE
    assert {"pydantic-core", "cramjam"} <= closure("assay"), "the closure is not followed"


def test_the_licence_is_there() -> None:
    text = (REPO / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    for project in ("pyproject.toml", "shared/pyproject.toml"):
        declared = tomllib.loads((REPO / project).read_text(encoding="utf-8"))["project"]
        assert declared["license"] == "Apache-2.0"
