"""The scorer over processes of several versions and steps (SPEC S4.12, S1.4; DESIGN §2)."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.events import GenerationAnswered, GenerationRequested, Meta
from assay_gate.chain import EXPRESSION_FAILED, Ask, Finished, next_request
from assay_gate.process import load_process, load_registry
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.failures import DeadLetter
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.domain.answering import CallLimits
from services.scorer.domain.availability import Policy
from services.scorer.domain.provider import ModelCall, ModelReply, ProbeResult
from services.scorer.handler import ScorerHandler
from tests.unit.scorer.asking import answer, stamped_meta

REPO = Path(__file__).parents[3]
REQUEST_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "request"))


class Recorder:
    """A provider that gives its answers in turn, then `{}`, and keeps the calls."""

    name = "ollama"
    model = "tiny"
    model_digest = "digest"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[ModelCall] = []

    async def generate(self, call: ModelCall) -> ModelReply:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else {}
        return ModelReply(json.dumps(answer), "tiny", "digest", "stop")

    async def probe(self) -> ProbeResult:
        return ProbeResult("unreachable", "")

    async def aclose(self) -> None:
        pass


def write(
    root: Path, folder: str, chain: list[dict[str, Any]], text: str = "Say {{ word }}.",
    fields: tuple[str, ...] = ("word",), **ours: Any,
) -> None:  # fmt: skip
    names = [step["name"] for step in chain if "scope" not in step]
    settings = {
        "pipeline": {"steps": chain},
        "prompts": {"template_dir": ".", "templates": dict.fromkeys(names, "a.jinja2")},
        "schemas": {"files": dict.fromkeys(names)},
        "validation": {name: {} for name in names},
        "assay": {"input_schema": "in.json", **ours},
    }
    (root / folder).mkdir(parents=True)
    schema = {"properties": {name: {} for name in fields}, "additionalProperties": False}
    (root / folder / "in.json").write_text(json.dumps(schema))
    (root / folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (root / folder / "a.jinja2").write_text(text)


def handler(processes: ProcessRegistry, *answers: Any) -> tuple[ScorerHandler, Recorder]:
    provider = Recorder(*answers)
    endpoint = Endpoint(provider, Policy(1, 5, 0.05, 0.01, 0.02), slots=2)
    return ScorerHandler(processes, endpoint, CallLimits(256, 4096, 5)), provider


def request(record: dict[str, Any], **changes: Any) -> GenerationRequested:
    meta: dict[str, Any] = {"request_id": REQUEST_ID, "tenant_id": "t", "process_id": "talk"}
    return GenerationRequested(meta=Meta(**meta | changes), input=record)


@pytest.fixture
def versions(tmp_path: Path) -> ProcessRegistry:
    write(tmp_path, "talk", [{"name": "a"}], version="2", text="New {{ word }}.")
    write(tmp_path, "talk@1", [{"name": "a"}], version="1", text="Old {{ word }}.")
    write(
        tmp_path, "talk@3", [{"name": "a"}], version="3", text="Next {{ word }}.",
        shadow={"of": "talk", "share": 1},
    )  # fmt: skip
    return load_registry(tmp_path)


async def test_a_request_without_hash_is_answered_by_the_current_version(
    versions: ProcessRegistry,
) -> None:
    """Issue row 1: and its answer records which one that was."""
    scorer, provider = handler(versions)
    asked = request({"word": "x"})
    current = versions.current("talk")
    assert current is not None
    stamped = await stamped_meta(scorer, asked)
    assert stamped == asked.meta.model_copy(
        update={
            "process_version": "2", "process_hash": current.hash, "step": "a",
            "unit_id": REQUEST_ID,
        }
    )  # fmt: skip
    await answer(scorer, asked)
    assert provider.calls[0].prompt.startswith("New x.")


async def test_a_recorded_hash_is_answered_by_its_version(
    versions: ProcessRegistry, tmp_path: Path
) -> None:
    """DESIGN §2: a retry goes to the version of the first attempt, whatever is current."""
    scorer, provider = handler(versions)
    old = load_process(tmp_path / "talk@1")
    asked = request({"word": "x"}, process_hash=old.hash, process_version="1", unit_id="mine")
    await answer(scorer, asked)
    assert provider.calls[0].prompt.startswith("Old x.")
    stamped = await stamped_meta(scorer, asked)
    assert (stamped.process_version, stamped.unit_id, stamped.shadow) == ("1", "mine", False)


async def test_a_shadows_answers_are_marked(versions: ProcessRegistry, tmp_path: Path) -> None:
    """Issue row 7: even if the request forgot the mark."""
    scorer, _ = handler(versions)
    shadow = load_process(tmp_path / "talk@3")
    asked = request({"word": "x"}, process_hash=shadow.hash)
    assert not asked.meta.shadow
    assert (await stamped_meta(scorer, asked)).shadow


async def test_a_hash_of_another_process_is_refused(
    versions: ProcessRegistry, tmp_path: Path
) -> None:
    """DESIGN §2: a recorded hash never answers for another id."""
    write(tmp_path, "walk", [{"name": "a"}], text="Walk.")
    registry = load_registry(tmp_path)
    scorer, provider = handler(registry)
    walk = registry.current("walk")
    assert walk is not None
    with pytest.raises(DeadLetter) as caught:
        await answer(scorer, request({"word": "x"}, process_hash=walk.hash))
    assert caught.value.code == "unknown_process_version"
    assert not provider.calls


DRAWN = [
    {"name": "draw", "scope": "expression", "expressions": {"n": "random.randint(1, limit)"}},
    {"name": "a"},
    {"name": "b"},
]


@pytest.mark.parametrize("step", [None, "draw"])
async def test_expressions_before_the_question_are_computed(
    tmp_path: Path, step: str | None
) -> None:
    """S4.12: their fields are in prompt and event, the same on every redelivery."""
    write(tmp_path, "talk", DRAWN, "Say {{ n }} for {{ unit_id }}.", fields=("limit",))
    scorer, provider = handler(load_registry(tmp_path))
    asked = request({"limit": 10**9}, step=step, unit_id="u1")
    fields = await answer(scorer, asked)
    event = GenerationAnswered.model_validate({"meta": await stamped_meta(scorer, asked), **fields})
    assert event.meta.step == "a"
    assert provider.calls[0].prompt.startswith(f"Say {event.input['n']} for u1.")
    assert await answer(scorer, asked) == fields


async def test_a_later_step_takes_the_accumulated_input(tmp_path: Path) -> None:
    """S4.12: fields of earlier steps pass the input schema; its own settings bind the call."""
    own = {"b": {"temperatures": [0.9, 0.8], "max_tokens": 9}}
    write(tmp_path, "talk", DRAWN, "Say {{ n }}.", fields=("limit",), steps=own)
    scorer, provider = handler(load_registry(tmp_path))
    await answer(scorer, request({"limit": 3, "n": 2, "found": 1}, step="b", attempt=2))
    (call,) = provider.calls
    assert (call.temperature, call.max_tokens) == (0.8, 9)
    assert call.prompt.startswith("Say 2.")


async def test_a_failed_expression_is_answered_without_a_model(tmp_path: Path) -> None:
    """S4.12: the validator makes a terminal rejection of it; nothing was asked."""
    write(tmp_path, "talk", DRAWN, "Say {{ n }}.", fields=("limit",))
    scorer, provider = handler(load_registry(tmp_path))
    asked = request({"limit": 0})
    fields = await answer(scorer, asked)
    event = GenerationAnswered.model_validate({"meta": await stamped_meta(scorer, asked), **fields})
    assert (event.outcome, event.raw, event.prompt) == ("failed", None, "")
    assert event.error is not None
    assert event.error.code == EXPRESSION_FAILED
    assert "step 'draw': ValueError" in event.error.message
    assert not provider.calls


async def test_a_step_that_leads_to_no_question_is_refused(tmp_path: Path) -> None:
    """X.4: clearly, and no call to the model."""
    last = {"name": "end", "scope": "expression", "expressions": {"m": "1"}}
    write(tmp_path, "talk", [*DRAWN, last], fields=("limit",))
    scorer, provider = handler(load_registry(tmp_path))
    with pytest.raises(DeadLetter) as caught:
        await answer(scorer, request({"limit": 1}, step="end"))
    assert caught.value.code == "invalid_input"
    assert "no step from 'end' on asks a model" in str(caught.value)
    assert not provider.calls


CLAIMS = {"claims": [{"text": "It broke", "polarity": "negative"}]}
VERDICT = {"verdict": "advise_against", "summary": "It broke.", "negative_claims": 1}
CARD = {"question": "How many wings has a bee?", "right": "4", "wrong": ["2", "6", "8"]}


@pytest.mark.parametrize(
    ("name", "record", "answers", "steps"),
    [
        ("review_digest", {"product": "Lamp", "review": "It broke."}, [CLAIMS, VERDICT],
         ["extract", "judge"]),
        ("quiz_card", {"topics": ["bees"]}, [CARD], ["ask"]),
        ("open_notes", {"text": "Buy milk."}, [{"title": "Errands"}], ["note"]),
    ],
)  # fmt: skip
async def test_the_shipped_processes_run_from_request_to_result(
    name: str, record: dict[str, Any], answers: list[Any], steps: list[str]
) -> None:
    """S4.12: question, judgement and next request in turn, as the bus carries them."""
    registry = load_registry(REPO / "schemas" / "processes")
    scorer, provider = handler(registry, *answers)
    process = registry.current(name)
    assert process is not None
    asked, visited = request(record, process_id=name), []
    while True:
        event = GenerationAnswered.model_validate(
            {"meta": await stamped_meta(scorer, asked), **await answer(scorer, asked)}
        )
        step, unit = event.meta.step or "", event.meta.unit_id or ""
        visited.append(step)
        verdict = process.gate(step).judge(event.raw or "", context=event.input, unit_id=unit)
        assert verdict.accepted, verdict.errors
        reached = next_request(process, event.meta, event.input, step, verdict.value, unit)
        if not isinstance(reached, Ask):
            break
        asked = GenerationRequested(meta=reached.meta, input=reached.input)
    assert visited == steps
    assert isinstance(reached, Finished)
    assert reached.output.items() >= answers[-1].items()
    assert len(provider.calls) == len(answers)
