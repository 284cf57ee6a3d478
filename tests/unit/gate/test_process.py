"""Loading process folders (DESIGN §4; SPEC S4.9, S4.12, S1.4, S3.4, S3.6, S5.7)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay_gate.process import ProcessError, PromptError, load_process, load_processes

REPO = Path(__file__).parents[3]
SHIPPED = REPO / "schemas" / "processes"

SCHEMA = {"type": "object", "properties": {"tone": {"type": "string"}}, "required": ["tone"]}


def config(**changes: Any) -> dict[str, Any]:
    """A configuration in seed 4's own shape, without anything of ours."""
    base: dict[str, Any] = {
        "pipeline": {"steps": [{"name": "talk", "prompt_template": "talk.jinja2"}]},
        "prompts": {"template_dir": "templates", "templates": {"talk": "talk.jinja2"}},
        "schemas": {"schema_dir": "schemas", "files": {"talk": "talk.json"}},
        "validation": {"talk": {"required": ["tone"]}},
        "api": {"retry": {"max_attempts": 3}},
        "processing": {"chunk_size": 100},
        "post_process": [{"name": "ignored"}],
    }
    return base | changes


def write(folder: Path, settings: dict[str, Any] | str, **files: str) -> Path:
    """A process folder with one template and one schema, besides the given files."""
    folder.mkdir(parents=True, exist_ok=True)
    text = settings if isinstance(settings, str) else yaml.safe_dump(settings)
    contents = {
        "config.yaml": text,
        "templates/talk.jinja2": "Speak to {{ npc.name }}.",
        "schemas/talk.json": json.dumps(SCHEMA),
    } | files
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


def test_a_configuration_of_seed_4_loads_unchanged(tmp_path: Path) -> None:
    """S4.12: several steps, an expression step, and none of our keys."""
    settings = config()
    settings["pipeline"]["steps"] += [
        {"name": "roll", "scope": "expression", "expressions": {"n": "random.randint(1, 6)"}},
        {"name": "rate", "prompt_template": "rate.jinja2"},
    ]
    settings["prompts"]["templates"]["rate"] = "rate.jinja2"
    settings["schemas"]["files"]["rate"] = None
    settings["validation"]["rate"] = None
    process = load_process(
        write(tmp_path / "npc", settings, **{"templates/rate.jinja2": "{{ tone }}"})
    )
    assert process.id == "npc"
    assert process.version == f"sha256-{process.hash[:12]}"
    assert [(s.name, s.kind) for s in process.steps] == [
        ("talk", "model"),
        ("roll", "expression"),
        ("rate", "model"),
    ]
    assert process.steps[1].settings["expressions"] == {"n": "random.randint(1, 6)"}
    assert process.attempts == 3
    assert [process.temperature(n) for n in (1, 2, 3, 4)] == [0.3, 0.2, 0.1, 0.1]
    assert process.exhausted == {
        "provider_unavailable": "reject",
        "answers_rejected": "reject",
    }
    assert process.result == "llm.generation.accepted.v1"
    assert process.key is None
    assert process.step("talk").rules == {"required": ["tone"]}
    prompt = process.render_prompt("talk", {"npc": {"name": "Ada"}})
    assert prompt.startswith("Speak to Ada.")


def test_a_step_without_schema_is_declared_by_null(tmp_path: Path) -> None:
    """S5.7: `null` satisfies the 4-point rule, and the model is asked for any JSON."""
    settings = config(schemas={"files": {"talk": None}})
    process = load_process(write(tmp_path, settings))
    assert process.step("talk").output_schema is None
    assert process.wire_schema("talk", {}) is None
    assert "exactly one JSON value" in process.render_prompt("talk", {"npc": {"name": "x"}})
    assert process.gate("talk").judge('{"anything": 1} ', amend=None).stage == "validation"


def broken(key: str, change: Any) -> Any:
    return pytest.param(key, change, id=key)


def without(*path: str) -> Any:
    def change(settings: dict[str, Any]) -> None:
        node = settings
        for name in path[:-1]:
            node = node[name]
        del node[path[-1]]

    return change


def having(value: Any, *path: str) -> Any:
    def change(settings: dict[str, Any]) -> None:
        node = settings
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value

    return change


ASSIGN = {"path": "$.tone", "value": "warm", "when": "quiet"}


@pytest.mark.parametrize(
    ("key", "change"),
    [
        broken("pipeline: missing", without("pipeline")),
        broken("pipeline.steps", having([], "pipeline", "steps")),
        broken("pipeline.steps[0].name", having([{"scope": "x"}], "pipeline", "steps")),
        broken("pipeline.steps[0]: must be", having(["talk"], "pipeline", "steps")),
        broken("prompts.templates.talk: missing; did you mean tolk?",
               having({"tolk": "talk.jinja2"}, "prompts", "templates")),
        broken("prompts.templates.talk", having({"talk": None}, "prompts", "templates")),
        broken("schemas.files.talk", without("schemas", "files", "talk")),
        broken("validation.talk", without("validation", "talk")),
        broken("validation: missing", without("validation")),
        broken("validation.talk.rules[0]",
               having([{"name": "r", "expr": "tone ="}], "validation", "talk", "rules")),
        broken("there is no file 'templates/no.jinja2'",
               having("no.jinja2", "prompts", "templates", "talk")),
        broken("schemas.files.talk: there is no file",
               having("no.json", "schemas", "files", "talk")),
        broken("assay.temprature: no such key; did you mean temperatures?",
               having([0.1], "assay", "temprature")),
        broken("assay.version: must be text", having(1.0, "assay", "version")),
        broken("assay.temperatures", having([3.5], "assay", "temperatures")),
        broken("assay.temperatures: has 1 attempts", having([0.1], "assay", "temperatures")),
        broken("assay.max_tokens", having(-1, "assay", "max_tokens")),
        broken("assay.exhausted.answers_rejected",
               having("pray", "assay", "exhausted", "answers_rejected")),
        broken("assay.exhausted.boredom", having("withhold", "assay", "exhausted", "boredom")),
        broken("assay.gate", having(1, "assay", "gate", "max_depht")),
        broken("assay.assign[0]: needs", having([{"path": "$.tone"}], "assay", "assign")),
        broken("assay.assign[0].path",
               having([{"path": "tone", "value": 1}], "assay", "assign")),
        broken("assay.assign[0].when",
               having([{**ASSIGN, "when": "quiet or loud"}], "assay", "assign")),
        broken("assay.assign[0].step",
               having([{**ASSIGN, "step": "walk"}], "assay", "assign")),
        broken("schemas/talk.json: $.mood", having([{**ASSIGN, "path": "$.mood"}],
                                                  "assay", "assign")),
    ],
)  # fmt: skip
def test_each_mistake_names_file_and_key(tmp_path: Path, key: str, change: Any) -> None:
    """S4.9: the file and the key of the mistake, and a hint where there is one."""
    settings = config()
    change(settings)
    with pytest.raises(ProcessError) as caught:
        load_process(write(tmp_path, settings))
    assert key in str(caught.value)
    assert str(caught.value).startswith(("config.yaml: ", "schemas/talk.json: "))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config.yaml": "a: ["}, "config.yaml"),
        ({"config.yaml": "[]"}, "config.yaml: is no mapping"),
        ({"config.yaml": "pipeline: 1\npipeline: 2"}, "'pipeline' is given twice"),
        ({"schemas/talk.json": "{"}, "schemas/talk.json: is no JSON"),
        ({"schemas/talk.json": '{"a": 1, "a": 2}'}, "'a' is given twice"),
        ({"schemas/talk.json": '{"type": "nothing"}'}, "talk.json: type: is no JSON Schema"),
        ({"schemas/talk.json": '{"$ref": "http://127.0.0.1:1/x"}'}, "leads out of the schema"),
        ({"templates/talk.jinja2": "{% if %}"}, "talk.jinja2: line 1"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    """S4.9: parse errors name the file; nothing is fetched for a $ref."""
    with pytest.raises(ProcessError) as caught:
        load_process(write(tmp_path, config(), **files))
    assert reason in str(caught.value)


def test_a_folder_without_configuration_is_no_process(tmp_path: Path) -> None:
    """S4.9: said with the folder's name."""
    with pytest.raises(ProcessError, match="there is no config"):
        load_process(tmp_path)
    with pytest.raises(ProcessError, match="no such folder"):
        load_process(tmp_path / "gone")


def test_the_hash_covers_every_file_and_its_name(tmp_path: Path) -> None:
    """DESIGN §4: what judged an answer is named by one hash; hidden files do not count."""
    first = load_process(write(tmp_path / "a", config())).hash
    assert load_process(write(tmp_path / "b", config())).hash == first
    (tmp_path / "b" / ".DS_Store").write_text("x")
    assert load_process(tmp_path / "b").hash == first
    for name in ("templates/talk.jinja2", "schemas/talk.json", "notes.md"):
        folder = write(tmp_path / "c", config())
        with (folder / name).open("a") as file:
            file.write(" ")
        assert load_process(folder).hash != first
        shutil.rmtree(folder)
    moved = write(tmp_path / "d", config(), x="yz")
    other = write(tmp_path / "e", config(), xy="z")
    assert load_process(moved).hash != load_process(other).hash


def test_a_loaded_process_is_frozen_and_reads_nothing_again(tmp_path: Path) -> None:
    """DESIGN §4: the process that was hashed is the one that runs."""
    folder = write(tmp_path / "a", config(), **{"templates/part.jinja2": "part"})
    (folder / "templates/talk.jinja2").write_text("{% include 'part.jinja2' %}")
    process = load_process(folder)
    shutil.rmtree(folder)
    assert process.render_prompt("talk", {}).startswith("part")
    with pytest.raises(dataclasses.FrozenInstanceError):
        process.version = "2"  # type: ignore[misc]


def test_processes_of_a_root_are_found_by_id(tmp_path: Path) -> None:
    """DESIGN §4: one folder each; an id is given once."""
    write(tmp_path / "one", config())
    write(tmp_path / "two", config(assay={"id": "second", "version": "7"}))
    (tmp_path / "readme.txt").write_text("no process")
    found = load_processes(tmp_path)
    assert set(found) == {"one", "second"}
    assert found["second"].version == "7"
    write(tmp_path / "three", config(assay={"id": "one"}))
    with pytest.raises(ProcessError, match=r"three/config\.yaml: assay\.id"):
        load_processes(tmp_path)


def test_assigned_values_follow_their_condition(tmp_path: Path) -> None:
    """S3.4: pinned in grammar and prompt, and told to the validator, only while it holds."""
    settings = config(assay={"assign": [ASSIGN, {**ASSIGN, "value": "loud", "when": "not quiet"}]})
    process = load_process(write(tmp_path, settings))
    for quiet, tone in ((True, "warm"), (False, "loud")):
        record = {"npc": {"name": "x"}, "quiet": quiet}
        assert process.assignments("talk", record) == [("$.tone", tone)]
        wire = process.wire_schema("talk", record)
        assert wire is not None
        assert wire["properties"]["tone"] == {"const": tone}
        assert f'"const": "{tone}"' in process.render_prompt("talk", record)
    always = config(assay={"assign": [{"path": "$.tone", "value": "warm"}]})
    assert load_process(write(tmp_path, always)).assignments("talk", {}) == [("$.tone", "warm")]


def test_conditions_and_key_must_be_in_the_input_schema(tmp_path: Path) -> None:
    """S3.4: a condition on a field that need not be there would silently never hold."""
    given = {"required": ["quiet"], "properties": {"quiet": {"type": "boolean"}}}
    ours = {"input_schema": "in.json", "assign": [ASSIGN], "key": "quiet"}
    load_process(write(tmp_path, config(assay=ours), **{"in.json": json.dumps(given)}))
    for schema in ({"properties": given["properties"]}, {**given, "properties": {}}):
        with pytest.raises(ProcessError, match=r"assay\.(assign|key)"):
            load_process(write(tmp_path, config(assay=ours), **{"in.json": json.dumps(schema)}))


def test_input_problems_name_the_field(tmp_path: Path) -> None:
    """S5.1: what is wrong with an input, and where; hostile values stay short."""
    given = {"required": ["a"], "properties": {"b": {"items": {"type": "integer"}}}}
    process = load_process(
        write(tmp_path, config(assay={"input_schema": "in.json"}), **{"in.json": json.dumps(given)})
    )
    assert process.input_problems({"a": 1, "b": [1]}) == []
    found = process.input_problems({"b": [1, "x" * 100_000]})
    assert {(p["path"], p["rule"]) for p in found} == {("$", "required"), ("$.b[1]", "type")}
    assert all(len(p["message"]) <= 300 for p in found)
    assert len(process.input_problems({"a": 1, "b": ["x"] * 1000})) == 20


def test_a_prompt_can_always_be_hashed_and_recorded(tmp_path: Path) -> None:
    """X.5: half a character in an input field that a template prints as it is."""
    process = load_process(write(tmp_path, config()))
    assert "Speak to ?." in process.render_prompt("talk", {"npc": {"name": "\ud800"}})


def test_a_template_that_includes_itself_is_refused_when_rendered(tmp_path: Path) -> None:
    """X.4: a PromptError like any other, not a bug of the scorer."""
    folder = write(tmp_path / "a", config())
    (folder / "templates/talk.jinja2").write_text("{% include 'talk.jinja2' %}")
    with pytest.raises(PromptError, match="includes itself"):
        load_process(folder).render_prompt("talk", {})
