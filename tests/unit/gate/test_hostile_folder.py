"""A process folder that means harm is refused by its file's name, by the check and by the loader
that services use (SPEC S4.9)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay_gate.bounded_yaml import MAX_DEPTH, MAX_YAML_BYTES, YamlError, load_yaml
from assay_gate.cli.validate import app as validate
from assay_gate.process import ProcessError, load_process, load_registry
from assay_gate.process_check import check_folder
from assay_gate.process_folder import MAX_BYTES

SEED = Path(__file__).parent / "processes" / "seed4"


def grown(first: str, next_: str, levels: int, wide: int) -> str:
    """Each line names the one above it `wide` times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, levels):
        names = ", ".join([f"*a{level - 1}"] * wide)
        lines.append(f"a{level}: &a{level} {next_ % names}")
    return "\n".join(lines) + "\n"


BOMB = grown("[x, x, x, x, x, x, x, x, x]", "[%s]", 7, 9)
TOO_DEEP = f"nested deeper than {MAX_DEPTH}"
HOSTILE = {
    "aliases": (BOMB, "aliases expand to more than"),
    "merged aliases": (grown("{a: 1, b: 2}", "{<<: [%s]}", 7, 9), "aliases expand to more than"),
    "aliases as keys": (grown("[x, x]", "{? [%s] : 1}", 7, 9), "aliases expand to more than"),
    "an alias in itself": ("a: &a [*a]\n", r"\*a contains itself"),
    "a chain of aliases": (grown("[x]", "[%s]", MAX_DEPTH + 1, 1), TOO_DEEP),
    "brackets": (f"a: {'[' * 5000}{']' * 5000}\n", TOO_DEEP),
    "dashes": ("- " * 5000, TOO_DEEP),
    "keys of keys": ("? " * 5000, TOO_DEEP),
    "a long number": (f"a: {'9' * 6000}\n", "a number of more than"),
    "a long number to base 60": (f"a: 1{':1' * 60_000}\n", "a number of more than"),
    "a date that is none": ("a: 2001-13-45\n", "not of its kind"),
    "a wrong tag": ("a: !!timestamp x\n", "not of its kind"),
    "a program": ("a: !!python/object/apply:os.getpid []\n", "could not determine a constructor"),
    "a long file": (f"# {'x' * MAX_YAML_BYTES}\n", "bytes, and YAML is read up to"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "processes" / "card_table"
    shutil.copytree(SEED / "card_table", copy)
    return copy


def refused(folder: Path, file: str, reason: str) -> None:
    """By all three that read a folder, each naming the file."""
    with pytest.raises(ProcessError, match=rf"^{file}: .*{reason}"):
        load_process(folder)
    with pytest.raises(ProcessError, match=rf"^card_table/{file}: .*{reason}"):
        load_registry(folder.parent)
    assert {finding.file for finding in check_folder(folder).mistakes} == {file}


@pytest.mark.parametrize("kind", HOSTILE)
def test_yaml_that_grows_or_breaks_its_reader(folder: Path, kind: str) -> None:
    """S4.9: parse errors, with the file; nothing of it is expanded first."""
    text, reason = HOSTILE[kind]
    config = folder / "config.yaml"
    config.write_text(text + config.read_text())
    refused(folder, "config.yaml", reason)


def test_aliases_of_an_honest_size_are_read() -> None:
    """S4.12: YAML allows them, so whoever wrote them for seed 4 may keep them; a value named
    twice counts twice and no more."""
    text = "base: &base {tries: 2, tags: &tags [a, b]}\nstep: {<<: *base, more: *tags}\n"
    tags = ["a", "b"]
    base = {"tries": 2, "tags": tags}
    assert load_yaml(text) == {"base": base, "step": {**base, "more": tags}}
    below = MAX_DEPTH - 2  # the mapping and the number are levels too
    assert load_yaml(f"a: {'[' * below}1{']' * below}")["a"]
    with pytest.raises(YamlError, match=TOO_DEEP):
        load_yaml(f"a: {'[' * (below + 1)}1{']' * (below + 1)}")


def test_an_items_file_that_grows_is_a_mistake_and_a_long_one_is_not(folder: Path) -> None:
    """S4.9: no service reads it, so its length alone refuses nothing."""
    items = folder / "items.yaml"
    whole = items.read_text()
    items.write_text(BOMB + whole)
    (mistake,) = check_folder(folder).mistakes
    assert (mistake.file, mistake.key) == ("items.yaml", "")
    assert "aliases expand to more than" in mistake.message
    items.write_text(f"# {'x' * MAX_YAML_BYTES}\n{whole}")
    result = check_folder(folder)
    assert result.mistakes == []
    assert any("too long to be read" in warning.message for warning in result.warnings)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"not":' * 900 + "{}" + "}" * 900])
def test_json_that_is_nested_too_deep(folder: Path, text: str) -> None:
    """S4.9: neither Python's reader nor what walks through the schema runs out of stack."""
    schema = next((folder / "schemas").iterdir())
    schema.write_text(text)
    refused(folder, f"schemas/{schema.name}", TOO_DEEP)
    schema.write_text(json.dumps({"type": "object", "items": [[[]]]}))
    assert not any(TOO_DEEP in str(found) for found in check_folder(folder).mistakes)


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if a %}" * 3000 + "{% endif %}" * 3000,
        "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    ],
)
def test_templates_that_are_nested_too_deep(folder: Path, text: str) -> None:
    """S4.9: Jinja2 turns them into Python, which has limits of its own."""
    template = next((folder / "templates").iterdir())
    template.write_text(text)
    refused(folder, f"templates/{template.name}", "nests too deep")


def test_more_bytes_than_a_process_has_are_not_read(folder: Path) -> None:
    """A link may lead to anything."""
    big = folder.parent / "big"
    with big.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    (folder / "link").symlink_to(big)
    with pytest.raises(ProcessError, match=f"or {MAX_BYTES} bytes: no process"):
        load_process(folder)
    (mistake,) = check_folder(folder).mistakes
    assert mistake.message.endswith(f"or {MAX_BYTES} bytes: no process")


def test_assay_validate_reads_its_rules_within_the_same_limits(folder: Path) -> None:
    """S4.9: exit code 2, and the file."""
    config = folder / "config.yaml"
    config.write_text(BOMB + config.read_text())
    result = CliRunner().invoke(validate, ["rules", "--config", str(config), "--step", "play"])
    assert result.exit_code == 2
    assert f"{config}: line 6: its aliases expand to more than" in result.output
