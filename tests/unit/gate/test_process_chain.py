"""The chain of steps: accumulation, expression steps, where it ends (SPEC S4.12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.events import Meta
from assay_gate.chain import (
    EXPRESSION_FAILED,
    Ask,
    Failed,
    Finished,
    computes_after,
    first_request,
    next_request,
)
from assay_gate.process import Process, ProcessError, load_process

SEED = Path(__file__).parent / "processes" / "seed4"
META = Meta(
    request_id="7b0cbd0e-7a31-5d0e-9f53-5c8e4b1f0a11", tenant_id="t", process_id="p",
    step="before", attempt=2, shadow=True,
)  # fmt: skip


def test_a_step_brings_its_fields_to_the_next() -> None:
    """S4.12: over three model steps with an expression step between them."""
    process = load_process(SEED / "article_chain")
    record = {"topic": "tides", "reader": "a child"}
    asked = first_request(process, META, record, "u")
    assert isinstance(asked, Ask)
    assert (asked.step, asked.input) == ("draft", record)
    draft = {"headings": ["Moon", "Sun"], "body": "two tides a day"}
    asked = next_request(process, META, record, "draft", draft, "u")
    assert isinstance(asked, Ask)
    assert asked.step == "critique"
    audit = asked.input.pop("audit")
    assert isinstance(audit, bool)
    assert asked.input == {
        **record, **draft, "words": 4, "length_class": "short", "longest": 4,
    }  # fmt: skip
    prompt = process.render_prompt("critique", asked.input | {"audit": audit})
    assert "A short draft (4 words) for a child:\ntwo tides a day" in prompt
    after = next_request(process, META, asked.input | {"audit": audit}, "critique",
                         {"points": ["shorter"]}, "u")  # fmt: skip
    assert isinstance(after, Ask)
    assert after.step == "revise"
    final = next_request(process, META, after.input, "revise", {"body": "new"}, "u")
    assert isinstance(final, Finished)
    assert final.record == {**after.input, "body": "new"}


def test_the_next_request_begins_anew() -> None:
    """S4.12: attempt 1 of the named step; identity and the shadow mark stay."""
    process = load_process(SEED / "support_replies")
    asked = next_request(process, META, {}, "answer", {"reply": "r", "tone": "warm"}, "u7")
    assert isinstance(asked, Ask)
    assert asked.meta == META.model_copy(update={"step": "grade", "attempt": 1, "unit_id": "u7"})


def test_expressions_before_the_first_question(tmp_path: Path) -> None:
    """S4.12: seed 4's loops and unit expressions are computed before a model is asked."""
    asked = first_request(load_process(SEED / "snail_climb"), META, {"depth": 6}, "u")
    assert isinstance(asked, Ask)
    assert asked.step == "narrate"
    assert asked.input["height"] >= 6
    assert len(asked.input["diary"]) == asked.input["days"]
    weather = load_process(SEED / "weather_trials")
    asked = first_request(weather, META, {"normal_pressure": 2000.0, "place": "x"}, "u")
    assert isinstance(asked, Ask)
    assert asked.input["falling"] is True
    assert ", falling, wind from the " in weather.render_prompt("forecast", asked.input)


def test_equal_arguments_give_equal_requests() -> None:
    """DESIGN §2: a redelivery repeats the same event, chance included."""
    process = load_process(SEED / "card_table")
    first = first_request(process, META, {"style": "x"}, "unit")
    assert first_request(process, META, {"style": "x"}, "unit") == first
    assert first_request(process, META, {"style": "x"}, "other") != first


def own(folder: Path, steps: list[dict[str, Any]], **ours: Any) -> Process:
    """A process of ours: model steps without schema, an input schema with address and text."""
    names = [step["name"] for step in steps if "scope" not in step]
    settings = {
        "pipeline": {"steps": steps},
        "prompts": {"template_dir": ".", "templates": dict.fromkeys(names, "a.jinja2"),
                    "global_context": {"shop": "Books"}},
        "schemas": {"files": dict.fromkeys(names)},
        "validation": {name: {} for name in names},
        "assay": {"input_schema": "in.json", **ours},
    }  # fmt: skip
    schema = {
        "required": ["address"], "additionalProperties": False,
        "properties": {"address": {"type": "string"}, "text": {"type": "string"}},
    }  # fmt: skip
    (folder / "in.json").write_text(json.dumps(schema))
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "a.jinja2").write_text("{{ shop }} {{ unit_id }} {{ tone | default('plain') }}")
    return load_process(folder)


def test_an_answer_never_replaces_what_the_request_brought(tmp_path: Path) -> None:
    """X.5: a model that was talked into naming another address changes nothing by it."""
    process = own(tmp_path, [{"name": "a"}, {"name": "b"}])
    lie = {"address": "0xother", "found": 1}
    asked = next_request(process, META, {"address": "0xmine"}, "a", lie, "u")
    assert isinstance(asked, Ask)
    assert asked.input == {"address": "0xmine", "found": 1}
    done = next_request(process, META, asked.input, "b", {"address": "0x1", "text": "t"}, "u")
    assert isinstance(done, Finished)
    assert done.record == {"address": "0xmine", "found": 1, "text": "t"}
    assert done.output == {"found": 1}


def test_a_step_that_says_it_would_is_refused(tmp_path: Path) -> None:
    """X.5, S4.9: by name, before the first request."""
    steps = [{"name": "c", "scope": "expression", "expressions": {"address": "'0x0'"}},
             {"name": "a"}]  # fmt: skip
    with pytest.raises(ProcessError, match=r"pipeline\.steps\.c: 'address' is a field of the in"):
        own(tmp_path, steps)


def test_an_answer_that_is_no_object_takes_its_steps_name(tmp_path: Path) -> None:
    """S5.7: without a schema an answer may be a list."""
    process = own(tmp_path, [{"name": "a"}, {"name": "b"}])
    asked = next_request(process, META, {"address": "x"}, "a", [1, 2], "u")
    assert isinstance(asked, Ask)
    assert asked.input == {"address": "x", "a": [1, 2]}


def test_a_process_of_one_step_ends_with_its_answer(tmp_path: Path) -> None:
    """S5.4: the typed value itself, whatever its shape."""
    process = own(tmp_path, [{"name": "a"}])
    done = next_request(process, META, {"address": "x"}, "a", [1, 2], "u")
    assert done == Finished({"address": "x", "a": [1, 2]}, [1, 2])


def test_a_failed_expression_ends_the_request(tmp_path: Path) -> None:
    """S4.12: as pipeline_internal, with the step, the expression and the reason."""
    steps = [{"name": "a"}, {"name": "c", "scope": "expression",
             "expressions": {"n": "1 / count"}}, {"name": "b"}]  # fmt: skip
    process = own(tmp_path, steps)
    failed = next_request(process, META, {"address": "x"}, "a", {"count": 0}, "u")
    assert isinstance(failed, Failed)
    assert (failed.step, failed.input) == ("c", {"address": "x", "count": 0})
    (error,) = failed.errors
    assert (error["path"], error["rule"]) == ("$.n", EXPRESSION_FAILED)
    assert "step 'c': ZeroDivisionError" in error["message"]


def test_later_inputs_keep_their_schema(tmp_path: Path) -> None:
    """S5.1: fields of earlier steps are no mistake, a wrong field of the request still is one."""
    process = own(tmp_path, [{"name": "a"}, {"name": "b"}])
    grown = {"address": "x", "found": 1}
    assert process.input_problems(grown) != []
    assert process.input_problems(grown, "a") != []
    assert process.input_problems(grown, "b") == []
    assert process.input_problems({"address": 1, "found": 1}, "b") != []


def test_constants_of_the_configuration_reach_the_template(tmp_path: Path) -> None:
    """S4.12: global_context, a step's own context and the unit; no input field replaces them."""
    process = own(tmp_path, [{"name": "a", "context": {"tone": "warm"}}, {"name": "b"}])
    record = {"address": "x", "shop": "hostile", "unit_id": "hostile"}
    assert process.render_prompt("a", record, unit_id="u1").startswith("Books u1 warm\n")
    assert process.render_prompt("b", record, unit_id="u2").startswith("Books u2 plain\n")


def test_a_request_can_begin_at_a_step(tmp_path: Path) -> None:
    """S4.12: at an expression step, and never at one that leads to no question."""
    steps = [{"name": "c", "scope": "expression", "expressions": {"n": "1"}}, {"name": "a"},
             {"name": "d", "scope": "expression", "expressions": {"m": "2"}}]  # fmt: skip
    process = own(tmp_path, steps)
    asked = first_request(process, META, {"address": "x"}, "u", "c")
    assert isinstance(asked, Ask)
    assert (asked.step, asked.input["n"]) == ("a", 1)
    for step in ("d", "nowhere"):
        with pytest.raises(ProcessError, match=r"pipeline\.steps"):
            first_request(process, META, {"address": "x"}, "u", step)


def test_where_an_answer_leads_to_computing(tmp_path: Path) -> None:
    """S4.12: at once after the step, not somewhere later; so a service knows when to make room."""
    steps = [{"name": "a"}, {"name": "b"},
             {"name": "c", "scope": "expression", "expressions": {"n": "1"}}]  # fmt: skip
    process = own(tmp_path, steps)
    assert [computes_after(process, step) for step in ("a", "b", "c")] == [False, True, False]
