"""What follows the last attempt, attempts per step, results (SPEC S1.4, S3.6, S5.3)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay_gate.process import Process, ProcessError, load_process

REPO = Path(__file__).parents[3]
SCHEMA = {
    "type": "object",
    "properties": {"tone": {"enum": ["warm", "unknown"]}},
    "required": ["tone"],
}


SCORE = "wallet.score.validated.v1"


def load_score(folder: Path, **ours: Any) -> Process:
    """The shipped wallet_score with other endings."""
    shutil.copytree(REPO / "schemas" / "processes" / "wallet_score", folder / "score")
    settings = yaml.safe_load((folder / "score" / "config.yaml").read_text())
    settings["assay"] |= ours
    (folder / "score" / "config.yaml").write_text(yaml.safe_dump(settings))
    return load_process(folder / "score")


def load(folder: Path, **ours: Any) -> Process:
    settings = {
        "pipeline": {"steps": [{"name": "a"}, {"name": "b"}]},
        "prompts": {"template_dir": ".", "templates": {"a": "a.jinja2", "b": "a.jinja2"}},
        "schemas": {"schema_dir": ".", "files": {"a": None, "b": "b.json"}},
        "validation": {"a": {}, "b": {}},
        "assay": ours,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "a.jinja2").write_text("Say.")
    (folder / "b.json").write_text(json.dumps(SCHEMA))
    return load_process(folder)


@pytest.mark.parametrize(
    ("result", "policy", "default"),
    [
        ("wallet.score.validated.v1", "fallback_score", "withhold"),
        ("wallet.score.validated.v1", "withhold", "withhold"),
        ("llm.generation.accepted.v1", "reject", "reject"),
        ("llm.generation.accepted.v1", "empty_result", "reject"),
    ],
)
def test_a_policy_that_fits_its_result(
    tmp_path: Path, result: str, policy: str, default: str
) -> None:
    """S3.6: per reason; the other reason keeps the safe default."""
    ours = {"empty_result": {"tone": "unknown"}} if policy == "empty_result" else {}
    loader = load_score if result == SCORE else load
    process = loader(tmp_path, result=result, exhausted={"answers_rejected": policy}, **ours)
    assert process.exhausted == {"answers_rejected": policy, "provider_unavailable": default}
    assert process.empty_result == ours.get("empty_result")


@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        ({"exhausted": {"answers_rejected": "fallback_score"}}, "does not fit llm.generation"),
        ({"exhausted": {"answers_rejected": "withhold"}}, "use reject or empty_result"),
        ({"result": "wallet.score.validated.v1", "exhausted": {"answers_rejected": "reject"}},
         "assay.exhausted.answers_rejected: reject does not fit wallet.score"),
        ({"exhausted": {"answers_rejected": "rejct"}}, "did you mean reject?"),
        ({"exhausted": {"answers_rejected": "empty_result"}}, "assay.empty_result: missing"),
        ({"empty_result": {"tone": "warm"}}, "assay.empty_result: no entry"),
        ({"exhausted": {"answers_rejected": "empty_result"}, "empty_result": {"tone": "cold"}},
         "assay.empty_result: does not fit the output schema of step 'b'"),
        ({"result": "wallet.score.signed.v1"}, "assay.result: must be one of"),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_fit(tmp_path: Path, ours: dict[str, Any], reason: str) -> None:
    """Issue row 2: refused before the first request, with file, key and reason."""
    with pytest.raises(ProcessError) as caught:
        load(tmp_path, **ours)
    assert str(caught.value).startswith("config.yaml: ")
    assert reason in str(caught.value)


def test_a_step_has_attempts_of_its_own(tmp_path: Path) -> None:
    """S1.4, issue row 2: temperatures, their number and the longest answer, per step."""
    process = load(
        tmp_path, temperatures=[0.3, 0.2], max_tokens=100,
        steps={"b": {"temperatures": [0.9, 0.5, 0.0], "max_tokens": 7}},
    )  # fmt: skip
    assert (process.attempts_of("a"), process.attempts_of("b")) == (2, 3)
    assert [process.temperature(n, "a") for n in (1, 2, 3)] == [0.3, 0.2, 0.2]
    assert [process.temperature(n, "b") for n in (1, 2, 3, 4)] == [0.9, 0.5, 0.0, 0.0]
    assert [process.step(name).attempts.max_tokens for name in "ab"] == [100, 7]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ({"c": {}}, "assay.steps.c: no step of this name asks a model"),
        ({"a": {"temperature": 1}}, "assay.steps.a.temperature: no such key; did you mean temp"),
        ({"a": {"temperatures": []}}, "assay.steps.a.temperatures: must be a list"),
        ({"a": {"max_tokens": 0}}, "assay.steps.a.max_tokens: must be a whole number"),
        ({"a": 3}, "assay.steps.a: must be a mapping"),
    ],
)
def test_a_steps_wrong_setting_is_named(tmp_path: Path, steps: dict[str, Any], reason: str) -> None:
    """S4.9: with its key."""
    with pytest.raises(ProcessError) as caught:
        load(tmp_path, steps=steps)
    assert reason in str(caught.value)


def test_a_score_needs_what_is_signed(tmp_path: Path) -> None:
    """S3.9: a process without these fields would break the signer's input, so it never loads."""
    with pytest.raises(ProcessError, match=r"assay\.result: a score needs 'address'"):
        load(tmp_path, result=SCORE)
    schema = REPO / "schemas" / "processes" / "wallet_score" / "output.schema.json"
    reduced = json.loads(schema.read_text())
    reduced["required"].remove("reasoning")
    load_score(tmp_path)
    (tmp_path / "score" / "output.schema.json").write_text(json.dumps(reduced))
    with pytest.raises(ProcessError, match=r"'reasoning', which the output schema of step 'score'"):
        load_process(tmp_path / "score")
