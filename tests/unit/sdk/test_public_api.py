"""The SDK's public names: all there, typed, light to import, and as its README uses them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from mypy import api as mypy

import assay
from assay.errors import AssayError

REPO = Path(__file__).parents[3]
INIT = Path(assay.__file__)
README = INIT.with_name("README.md")
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def mypy_errors(*arguments: str) -> str:
    output, errors, status = mypy.run(["--config-file", str(REPO / "pyproject.toml"), *arguments])
    return output + errors if status else ""


def test_all_names_are_where_they_are_said_to_be() -> None:
    assert sorted(assay.__all__) == sorted(assay._HOMES)
    for name in assay.__all__:
        assert getattr(assay, name) is getattr(import_module(assay._HOMES[name]), name)
    assert set(assay.__all__) <= set(dir(assay))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(INIT.read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: statement.module
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == assay._HOMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'WalletPublishr'"):
        _ = assay.WalletPublishr


def test_every_public_error_has_one_root() -> None:
    errors = [getattr(assay, name) for name in assay.__all__ if name.endswith("Error")]
    assert len(errors) >= 6
    assert all(issubclass(error, AssayError) for error in errors)


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """errors.py opens with it, so it has to be right."""
    from assay import errors

    drawn = re.findall(r"([│ ]*)[├└]── (\w+)", errors.__doc__ or "")
    parents = {0: AssayError}
    for indent, name in drawn:
        depth = len(indent) // 4
        error = getattr(errors, name, None) or getattr(assay, name)
        assert error.__bases__[0] is parents[depth], name
        parents[depth + 1] = error
    assert {name for _, name in drawn} >= {
        name for name in assay.__all__ if name.endswith("Error")
    } - {"AssayError"}


@pytest.mark.parametrize("module", ["assay", "assay.attestation", "assay.events"])
def test_verifying_does_not_load_a_kafka_client(module: str) -> None:
    code = f"import sys, {module}; sys.exit('aiokafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_typing_is_what_users_rely_on() -> None:
    """Strict mypy over public_api.py; its ignores must all be needed."""
    assert mypy_errors(str(Path(__file__).with_name("public_api.py"))) == ""


def test_lost_typing_is_found(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from assay import parse_address\nx: int = parse_address('0x')\n", encoding="utf-8"
    )
    assert "Incompatible types" in mypy_errors(str(tmp_path / "wrong.py"))


def test_the_package_says_that_it_is_typed() -> None:
    assert INIT.with_name("py.typed").is_file()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readmes_python_uses_what_there_is(number: int) -> None:
    tree = ast.parse(BLOCKS[number])
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "assay"
        for alias in node.names
    ]
    assert imported
    assert set(imported) <= set(assay.__all__)


def test_the_readme_is_not_empty() -> None:
    assert len(BLOCKS) >= 2
