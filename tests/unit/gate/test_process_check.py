"""`assay process check` (SPEC S4.9, S4.10, S4.12): all six checks, all mistakes in one run."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from assay_gate.cli.process import app
from assay_gate.process import ProcessError, load_process
from assay_gate.process_check import Checked, check_folder, check_processes

REPO = Path(__file__).parents[3]
SEED = Path(__file__).parent / "processes" / "seed4"
WRITTEN_FOR_SEED_4 = sorted(f.name for f in SEED.iterdir() if not f.name.startswith("refused_"))

SETTINGS: dict[str, Any] = {
    "pipeline": {
        "steps": [
            {
                "name": "roll",
                "scope": "expression",
                "expressions": {"dice": "random.randint(1, n)"},
            },
            {"name": "play", "prompt_template": "play.jinja2"},
            {"name": "rate"},
        ]
    },
    "prompts": {"templates": {"play": "play.jinja2", "rate": "rate.jinja2"}},
    "schemas": {"files": {"play": "play.json", "rate": "rate.json"}},
    "validation": {"play": {"required": ["move"]}, "rate": {}},
    "api": {"retry": {"max_attempts": 3}},
    "processing": {"items": {"source": "items.yaml", "key": "games"}},
}
FILES = {
    "items.yaml": "games:\n  - {id: one, n: 6, player: Ada}\n",
    "templates/play.jinja2": "{{ player }} rolled {{ dice }}.",
    "templates/rate.jinja2": "Rate {{ move }} of {{ unit_id }}.",
    "schemas/play.json": '{"type": "object", "properties": {"move": {"type": "string"}}}',
    "schemas/rate.json": '{"type": "object", "properties": {"stars": {"type": "integer"}}}',
}


def check(tmp_path: Path, change: Any = None, **files: str) -> Checked:
    settings = copy.deepcopy(SETTINGS)
    if change is not None:
        change(settings)
    contents = {**FILES, **files, "config.yaml": yaml.safe_dump(settings)}
    for name, content in contents.items():
        path = tmp_path / "game" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return check_folder(tmp_path / "game")


def found(result: Checked) -> list[tuple[str, str]]:
    return [(finding.file, finding.key) for finding in result.mistakes]


def told(result: Checked, key: str) -> str:
    (finding,) = [finding for finding in result.mistakes if finding.key == key]
    return finding.message


def put(value: Any, *path: Any) -> Any:
    def change(settings: dict[str, Any]) -> None:
        node: Any = settings
        for name in path[:-1]:
            node = node[name]
        if value is None:
            del node[path[-1]]
        else:
            node[path[-1]] = value

    return change


@pytest.mark.parametrize("name", WRITTEN_FOR_SEED_4)
def test_configurations_written_for_seed_4_pass_unchanged(name: str) -> None:
    """S4.12, issue "done when": and what passes loads, under its folder's name."""
    result = check_folder(SEED / name)
    assert result.mistakes == []
    assert load_process(SEED / name).id == name


def test_there_are_enough_of_them() -> None:
    """Issue item 1: multi-step, expressions, init, loop_until, random, unit expressions."""
    assert len(WRITTEN_FOR_SEED_4) >= 6
    text = "".join((SEED / name / "config.yaml").read_text() for name in WRITTEN_FOR_SEED_4)
    for key in (
        "init:",
        "loop_until:",
        "random.sample",
        "post_process:",
        "provider:",
        "cross_product",
        "permutation",
        "scope: run",
        "  expressions:",
        "global_context:",
    ):
        assert key in text  # fmt: skip


def test_the_example_of_this_file_is_right(tmp_path: Path) -> None:
    """What the tests below break is whole before."""
    result = check(tmp_path)
    assert result.mistakes == []
    assert result.process is not None


@pytest.mark.parametrize("section", ["pipeline", "prompts", "schemas", "api", "processing"])
def test_1_sections_are_required(tmp_path: Path, section: str) -> None:
    """S4.9, first check."""
    result = check(tmp_path, put(None, section))
    assert ("config.yaml", section) in found(result)


def test_1_a_misspelt_section_is_recognised(tmp_path: Path) -> None:
    """S4.9: with a hint."""

    def misspell(settings: dict[str, Any]) -> None:
        settings["procesing"] = settings.pop("processing")

    assert "did you mean procesing?" in told(check(tmp_path, misspell), "processing")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("prompts", "templates", "rate"), "prompts.templates.rate"),
        (("schemas", "files", "rate"), "schemas.files.rate"),
        (("validation", "rate"), "validation.rate"),
        (("prompts", "templates"), "prompts.templates"),
        (("validation",), "validation"),
    ],
)
def test_2_each_missing_link_is_named(tmp_path: Path, path: tuple[str, ...], key: str) -> None:
    """S4.9, second check: the 4-point link rule; expression steps are exempt."""
    result = check(tmp_path, put(None, *path))
    assert found(result) == [("config.yaml", key)]


def test_3_templates_exist_compile_and_know_their_fields(tmp_path: Path) -> None:
    """S4.9, third check: with the field that may have been meant."""
    gone = check(tmp_path / "a", put("rat.jinja2", "prompts", "templates", "rate"))
    assert "did you mean templates/rate.jinja2?" in told(gone, "prompts.templates.rate")
    broken = check(
        tmp_path / "b",
        **{"templates/play.jinja2": "{% if %}", "templates/rate.jinja2": "{{ a | nofilter }}"},
    )
    assert {file for file, _ in found(broken)} == {"templates/play.jinja2", "templates/rate.jinja2"}
    unknown = check(tmp_path / "c", **{"templates/play.jinja2": "{{ plaeyr }} {{ move }}"})
    assert found(unknown) == [
        ("templates/play.jinja2", "move"),
        ("templates/play.jinja2", "plaeyr"),
    ]
    assert told(unknown, "plaeyr").endswith("did you mean player?")
    private = check(tmp_path / "d", **{"templates/play.jinja2": "{{ player.__class__ }}"})
    assert found(private) == [("templates/play.jinja2", "__class__")]


@pytest.mark.parametrize(
    "template",
    [
        "{% set x = 1 %}{{ x }}{% for y in [1] %}{{ y }}{{ loop.index }}{% endfor %}",
        "{% if mood is defined %}{{ mood }}{% endif %}{{ note | default('none') }}",
        "{{ config.processing }} {{ dice }} {{ id }} {{ api.retry }}",
    ],
)
def test_3_what_a_template_may_use(tmp_path: Path, template: str) -> None:
    """S4.9: no false mistakes for own variables, optional fields and the configuration."""
    assert check(tmp_path, **{"templates/play.jinja2": template}).mistakes == []


def test_3_included_templates_are_read_too(tmp_path: Path) -> None:
    """S4.9: the file that is wrong is named, not the one that includes it."""
    files = {
        "templates/play.jinja2": "{% set good = 1 %}{% include 'part.jinja2' %}",
        "templates/part.jinja2": "{{ good }} {{ plaeyr }}",
    }
    assert found(check(tmp_path, **files)) == [("templates/part.jinja2", "plaeyr")]


@pytest.mark.parametrize("folder", ["templates/", "templates/parts/", "templates/a/b/"])
def test_3_includes_come_from_every_folder_below_the_templates(tmp_path: Path, folder: str) -> None:
    """S4.12: as seed 4's loader finds them, by the name relative to `template_dir`."""
    name = f"{folder}note.jinja2".removeprefix("templates/")
    loads = f"{{% include {name!r} %}}{{% import {name!r} as x %}}"
    files = {
        "templates/play.jinja2": loads + "{{ dice }}",
        f"{folder}note.jinja2": "Mind the rules.",
    }
    assert check(tmp_path, **files).mistakes == []
    prompt = load_process(tmp_path / "game").render_prompt("play", {"dice": 6})
    assert prompt.startswith("Mind the rules.6")


@pytest.mark.parametrize(
    "statement",
    [
        "{% include 'footre.jinja2' %}",
        "{% import 'footre.jinja2' as p %}",
        "{% from 'footre.jinja2' import p %}",
        "{% extends 'footre.jinja2' %}",
        "{% include ['footre.jinja2'] %}",
    ],
)
def test_3_an_include_that_is_not_there(tmp_path: Path, statement: str) -> None:
    """S4.9, third check: or every request of the process would fail, and be called a bad input."""
    files = {"templates/play.jinja2": statement, "templates/footer.jinja2": "x"}
    result = check(tmp_path, **files)
    assert found(result) == [("templates/play.jinja2", "footre.jinja2")]
    assert "did you mean footer.jinja2?" in result.mistakes[0].message
    with pytest.raises(ProcessError, match=r"play\.jinja2: footre\.jinja2"):
        load_process(tmp_path / "game")


@pytest.mark.parametrize(
    "statement",
    [
        "{% include 'footre.jinja2' ignore missing %}",
        "{% include ['footre.jinja2', 'footer.jinja2'] %}",
        "{% include player %}",
    ],
)
def test_3_an_include_that_may_be_missing(tmp_path: Path, statement: str) -> None:
    """S4.9: no false mistakes where one is enough, none is needed, or the input decides."""
    files = {"templates/play.jinja2": statement, "templates/footer.jinja2": "x"}
    assert check(tmp_path, **files).mistakes == []


def test_4_schemas_are_valid(tmp_path: Path) -> None:
    """S4.9, fourth check: Draft 2020-12, every schema of the folder."""
    bad = '{"type": "object", "properties": {"a": {"type": "nummer"}}}'
    result = check(tmp_path, **{"schemas/play.json": bad, "schemas/rate.json": "{"})
    places = [("schemas/play.json", "properties.a.type"), ("schemas/rate.json", "")]
    assert found(result) == places


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("random.randint(1, m)", "m is no field known here"),
        ("playre", "did you mean player?"),
        ("n.upper()", "AttributeError"),
        ("player / 2", "TypeError"),
        ("[1, 2][n]", "IndexError"),
        ("lenght(player)", "lenght is no field known here"),
        ("n +", "syntax error"),
    ],
)
def test_5_expressions_evaluate(tmp_path: Path, expression: str, reason: str) -> None:
    """S4.9, fifth check: on the first item; each with its key and the reason."""
    change = put(expression, "pipeline", "steps", 0, "expressions", "dice")
    result = check(tmp_path, change)
    assert reason in told(result, "pipeline.steps[0].expressions.dice")


def test_5_what_may_be_right_for_real_values_is_a_warning(tmp_path: Path) -> None:
    """Issue "done when": refused only for a reason that is true. A sample text is no number, a
    real one may be; a number has no upper() whatever its value."""

    def later(expression: str) -> Any:
        step = {"name": "use", "scope": "expression", "expressions": {"x": expression}}

        def change(settings: dict[str, Any]) -> None:
            settings["pipeline"]["steps"].append(step)

        return change

    doubtful = check(tmp_path / "a", later("int(move)"))
    assert doubtful.mistakes == []
    assert any(w.key == "pipeline.steps[3].expressions.x" for w in doubtful.warnings)
    wrong = check(tmp_path / "b", later("stars.upper()"))
    assert found(wrong) == [("config.yaml", "pipeline.steps[3].expressions.x")]


def test_5_every_expression_of_a_loop_is_tried(tmp_path: Path) -> None:
    """S4.9: init, expressions and loop_until; a failed one brings no others down."""
    step = {
        "name": "roll", "scope": "expression", "init": {"sum": "zero"},
        "expressions": {"dice": "sum + 1", "sum": "sum + dcie"}, "loop_until": "summ > 9",
    }  # fmt: skip
    result = check(tmp_path, put(step, "pipeline", "steps", 0))
    where = "pipeline.steps[0]"
    assert found(result) == [
        ("config.yaml", f"{where}.init.sum"),
        ("config.yaml", f"{where}.expressions.sum"),
        ("config.yaml", f"{where}.loop_until"),
    ]


def test_5_unit_expressions_are_tried_too(tmp_path: Path) -> None:
    """S4.12: seed 4's processing.expressions."""
    result = check(tmp_path, put({"wind": "nobody"}, "processing", "expressions"))
    assert found(result) == [("config.yaml", "processing.expressions.wind")]


def test_6_rules_parse(tmp_path: Path) -> None:
    """S4.9, sixth check: all of them, not only the first."""
    rules = [{"name": "a", "expr": "1 +"}, {"name": "b", "expr": "1", "when": "("}]
    change = put({"types": {"move": "text"}, "rules": rules}, "validation", "play")
    assert found(check(tmp_path, change)) == [
        ("config.yaml", "validation.play.types.move"),
        ("config.yaml", "validation.play.rules[0].expr"),
        ("config.yaml", "validation.play.rules[1].when"),
    ]


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties"])
def test_a_closed_schema_is_refused_where_records_are_merged(tmp_path: Path, keyword: str) -> None:
    """S4.10: in a configuration of seed 4's kind, and the reason is told; with a section of ours
    the schema judges the answer alone and may be closed, and so may an inner object anywhere."""
    closed = json.dumps({"type": "object", "properties": {"move": {}}, keyword: False})
    result = check(tmp_path / "a", **{"schemas/play.json": closed})
    assert found(result) == [("schemas/play.json", keyword)]
    assert "merged" in result.mistakes[0].message
    ours = put({"id": "game"}, "assay")
    assert check(tmp_path / "b", ours, **{"schemas/play.json": closed}).mistakes == []
    inner = json.dumps({"type": "object", "properties": {"move": {keyword: False}}})
    assert check(tmp_path / "c", **{"schemas/play.json": inner}).mistakes == []


def test_injected_fields_are_not_asked_of_the_model(tmp_path: Path) -> None:
    """S4.10: a schema of seed 4 may describe or require them; the gate refuses them in answers."""
    schema = {
        "type": "object",
        "properties": {"move": {"type": "string"}, "unit_id": {"type": "string"},
                       "_metadata": {"type": "object"}},
        "required": ["move", "unit_id"],
    }  # fmt: skip
    process = check(tmp_path, **{"schemas/play.json": json.dumps(schema)}).process
    assert process is not None
    wire = process.wire_schema("play", {})
    assert wire is not None
    assert set(wire["properties"]) == {"move"}
    assert process.gate("play").judge('{"move": "e4"}').accepted
    assert not process.gate("play").judge('{"move": "e4", "unit_id": "x"}').accepted


def test_seed_4s_enum_prefix_is_known_to_its_configurations() -> None:
    """S4.3: "shadow " in front of a card's name, in configurations of its kind only."""
    gate = load_process(SEED / "tarot_stories").gate("tell")
    story = {"text": "Once upon a time, there.", "mood": "returning"}
    answer = {"all_stories": [story] * 4, "story_count": 4, "dominant_card": "Shadow The Ferry"}
    verdict = gate.judge(json.dumps(answer))
    assert verdict.accepted, verdict.errors
    assert verdict.value["dominant_card"] == "The Ferry"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (put([{"name": "x", "script": "y.py"}], "post_process"), "post_process"),
        (put("gemini", "api", "provider"), "api.provider"),
        (put("m", "api", "model"), "api.model"),
        (put(5, "api", "retry", "initial_delay_seconds"), "api.retry.initial_delay_seconds"),
        (put({"cost_cap_usd": 5}, "api", "realtime"), "api.realtime"),
        (put("openai", "pipeline", "steps", 1, "provider"), "pipeline.steps[1].provider"),
        (put(100, "processing", "repeat"), "processing.repeat"),
        (put(True, "schemas", "strict_mode"), "schemas.strict_mode"),
        (put({}, "validation", "rat"), "validation.rat"),
        (put(1, "processing", "chunksize"), "processing.chunksize"),
        (put({"name": "pack", "scope": "run", "script": "s.py"}, "pipeline", "steps", 0),
         "pipeline.steps[0]"),
    ],
)  # fmt: skip
def test_keys_without_effect_are_warned_of(tmp_path: Path, change: Any, key: str) -> None:
    """Issue item 1: named, and never a reason to refuse."""
    result = check(tmp_path, change, **{"templates/play.jinja2": "{{ player }}"})
    assert result.mistakes == []
    (warning,) = [finding for finding in result.warnings if finding.key == key]
    said = {"validation.rat": "did you mean rate?", "processing.chunksize": "no such key",
            "pipeline.steps[0]": "works on a whole run"}  # fmt: skip
    assert said.get(key, "has no effect here: ") in warning.message


def test_all_mistakes_come_in_one_run() -> None:
    """S4.9: of every kind, with a hint wherever a known name is close."""
    result = check_folder(SEED / "refused_many")
    assert set(found(result)) == {
        ("config.yaml", "api"),
        ("config.yaml", "pipeline.steps[0].expressions.dice"),
        ("config.yaml", "pipeline.steps[0].expressions.total"),
        ("config.yaml", "pipeline.steps[0].expressions.label"),
        ("config.yaml", "pipeline.steps[2].depends_on"),
        ("config.yaml", "pipeline.steps[3].scope"),
        ("config.yaml", "prompts.templates.judge"),
        ("config.yaml", "schemas.files.judge"),
        ("config.yaml", "validation.judge"),
        ("config.yaml", "validation.play.types.score"),
        ("config.yaml", "validation.play.rules[0].expr"),
        ("config.yaml", "processing.validation_retry.max_attempts"),
        ("schemas/play.json", "properties.score.type"),
        ("templates/play.jinja2", "plaeyr"),
    }
    for key, meant in (
        ("pipeline.steps[0].expressions.dice", "count"),
        ("pipeline.steps[2].depends_on", "play"),
        ("pipeline.steps[3].scope", "expression"),
        ("validation.judge", "juge"),
        ("plaeyr", "player"),
    ):
        assert told(result, key).endswith(f"did you mean {meant}?")


def test_fan_out_is_refused_for_what_it_is() -> None:
    """Issue "done when": a reason that is true."""
    result = check_folder(SEED / "refused_fan_out")
    assert found(result) == [("config.yaml", "pipeline.steps[0].scope")]
    assert "exactly one result" in result.mistakes[0].message


def test_a_folder_of_processes_is_checked_as_one_system(tmp_path: Path) -> None:
    """S4.9: each folder, and then what they say about each other."""
    for name in ("snail_climb", "card_table"):
        shutil.copytree(SEED / name, tmp_path / name)
    assert [r.mistakes for r in check_processes(tmp_path)] == [[], []]
    shutil.copytree(SEED / "snail_climb", tmp_path / "again")
    results = {r.folder.name: r for r in check_processes(tmp_path)}
    assert "already" in results["snail_climb"].mistakes[0].message
    assert results["card_table"].mistakes == []


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *arguments])
    return result.exit_code, result.output


def test_exit_codes_and_output(tmp_path: Path) -> None:
    """S4.9: 0 with warnings only, 1 with mistakes, 2 for a wrong use; JSON for machines."""
    code, output = run(str(SEED / "snail_climb"))
    assert code == 0
    assert "warning: snail_climb/config.yaml: post_process: has no effect here" in output
    code, output = run(str(SEED / "refused_closed_schema"))
    assert code == 1
    assert "mistake: refused_closed_schema/schemas/judge.json: additionalProperties" in output
    assert run(str(tmp_path))[0] == 2
    assert run(str(tmp_path / "gone"))[0] == 2
    code, output = run(str(SEED), "--json")
    assert code == 1
    processes = {Path(p["folder"]).name: p for p in json.loads(output)["processes"]}
    assert processes["card_table"]["mistakes"] == []
    assert processes["card_table"]["hash"] == load_process(SEED / "card_table").hash
    assert processes["refused_fan_out"]["hash"] is None
    assert set(processes["refused_fan_out"]["mistakes"][0]) == {"file", "key", "message"}


def test_the_shipped_processes_are_clean() -> None:
    """S4.9: not even a warning."""
    results = check_processes(REPO / "schemas" / "processes")
    assert len(results) >= 4
    assert [finding for result in results for finding in result.findings] == []


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a configuration, the whole of it aside."""
    members = node.items() if isinstance(node, dict) else enumerate(node)
    found = []
    for name, value in members:
        found.append((*path, name))
        if isinstance(value, dict | list):
            found += places(value, (*path, name))
    return found


FULL: dict[str, Any] = {
    **SETTINGS,
    "processing": {
        "items": {"source": "items.yaml", "key": "games"}, "expressions": {"e": "1"},
        "positions": [{"name": "p", "source_key": "games"}], "validation_retry": {},
    },
    "prompts": SETTINGS["prompts"] | {"global_context": {"x": 1}, "template_dir": "templates"},
    "assay": {
        "id": "game", "version": "1", "input_schema": "in.json", "key": "n", "temperatures": [0.1],
        "steps": {"play": {"max_tokens": 3}}, "exhausted": {"answers_rejected": "empty_result"},
        "empty_result": {}, "gate": {"max_depth": 9}, "shadow": {"of": "x", "share": 0.5},
        "assign": [{"path": "$.move", "value": "e4", "when": "n", "step": "play"}],
    },
}  # fmt: skip


@pytest.mark.parametrize("wrong", [None, 1, "x", [], {1: [None]}])
def test_no_configuration_breaks_the_check(tmp_path: Path, wrong: Any) -> None:
    """S4.9: whatever stands in any place, there are findings and no traceback."""
    for number, path in enumerate(places(FULL)):
        settings = copy.deepcopy(FULL)
        node: Any = settings
        for name in path[:-1]:
            node = node[name]
        node[path[-1]] = wrong

        def change(base: dict[str, Any], changed: dict[str, Any] = settings) -> None:
            base.clear()
            base.update(changed)

        result = check(tmp_path / str(number), change, **{"in.json": '{"required": ["n"]}'})
        assert isinstance(result.mistakes, list)


@pytest.mark.parametrize(
    ("template", "meant"),
    [
        ("{{ diece }}", "dice"),
        ("{{ tabel }}", "table"),
        ("{{ unitid }}", "unit_id"),
        ("{% for move in moves %}{{ move }}{% endfor %}{{ text }}{{ dice }}{{ rolls }}", None),
        ("{{ diece | default('none') }}{% if tabel is defined %}x{% endif %}", None),
        ("{{ apis }}{{ process }}", None),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_3_a_name_beside_a_known_one_is_doubtful_where_the_input_is_free(
    tmp_path: Path, template: str, meant: str | None, ours: bool
) -> None:
    """S4.9: without an input schema or items any name may be the input's, so it is no mistake;
    one that nearly is what a step makes, or a constant, is warned of."""

    def change(settings: dict[str, Any]) -> None:
        del settings["processing"]["items"]
        settings["prompts"]["global_context"] = {"table": "oak"}
        if ours:
            settings["assay"] = {"id": "game"}

    result = check(tmp_path, change, **{"templates/play.jinja2": template})
    assert result.mistakes == []
    warned = [w.message for w in result.warnings if w.file == "templates/play.jinja2"]
    assert len(warned) == (0 if meant is None else 1)
    if meant is not None:
        assert warned[0].endswith(f"only an input could bring such a field; did you mean {meant}?")
