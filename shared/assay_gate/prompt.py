"""Prompts: sandboxed Jinja2 templates, the output schema, and the stricter block of retries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay_gate.untrusted import neutral, neutral_json, neutral_line
from assay_gate.verdict import GateError, Problem

MAX_PROMPT_BYTES = 262_144
MAX_FEEDBACK = 10
MAX_MESSAGE_BYTES = 300
_MAX_PATH_BYTES = 120

# Seed 5's own words; the validator's tests and other systems look for the first sentence.
_STRICTER = """\
PREVIOUS ATTEMPT FAILED VALIDATION. Your response MUST be valid JSON matching:
{schema}

CRITICAL REQUIREMENTS:
- Output ONLY valid JSON
- Do NOT include markdown code blocks
- Do NOT include explanations before or after the JSON
- Ensure all required fields are present
- Match exact types (strings for strings, numbers for numbers)
"""
_ANSWER = """\
Respond with exactly one JSON value that matches this JSON Schema, and with nothing else:
{schema}
"""
_ANSWER_WITHOUT_SCHEMA = "Respond with exactly one JSON value, and with nothing else.\n"
_ANNOTATIONS = ("$schema", "$id", "$comment", "version", "title")


class PromptError(GateError):
    """A template cannot be compiled, or an input cannot be rendered with it."""


def template_environment(sources: Mapping[str, str]) -> jinja2.Environment:
    """The sandbox of templates; they may include each other and reach nothing else.

    Filters besides Jinja2's own: `json` (one line, strings neutral) and `untrusted(most_bytes)`.
    """
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.DictLoader(dict(sources)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["json"] = _json
    environment.filters["untrusted"] = _untrusted
    return environment


def compile_templates(sources: Mapping[str, str]) -> Mapping[str, jinja2.Template]:
    """Templates by name, compiled in the sandbox; PromptError begins with the template's name."""
    environment = template_environment(sources)
    templates = {}
    for name in sources:
        try:
            templates[name] = environment.get_template(name)
        except jinja2.TemplateSyntaxError as error:
            raise PromptError(f"{error.name or name}: line {error.lineno}: {error}") from None
        except (RecursionError, SyntaxError, MemoryError):  # of Python, which it becomes
            raise PromptError(f"{name}: nests too deep") from None
    return templates


def _json(value: Any) -> str:
    return neutral_json(_defined(value))


def _untrusted(value: Any, most_bytes: int) -> str:
    return neutral(_defined(value), most_bytes)


def _defined(value: Any) -> Any:
    """The value; an undefined one raises as it does where a template prints it."""
    return str(value) if isinstance(value, jinja2.Undefined) else value


def render(
    template: jinja2.Template,
    record: Mapping[str, Any],
    schema: str | None,
    *,
    stricter: bool,
    feedback: Sequence[Problem] = (),
) -> str:
    """The whole prompt: template, answer format and, on retries, seed 5's stricter block (S5.2).

    `schema` is the output schema's text (`schema_text`), None where any JSON will do. It is always
    in the prompt, because a grammar alone is not shown to the model. Raises
    PromptError for a field the template needs and the record lacks, and above MAX_PROMPT_BYTES.
    """
    name = template.name or "template"
    try:
        body = template.render(record)
    except jinja2.UndefinedError as error:
        raise PromptError(f"{name}: {error}") from None
    except RecursionError:
        raise PromptError(f"{name}: includes itself, or nests too deep") from None
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise PromptError(f"{name}: {type(error).__name__}: {error}") from None
    parts = [body.strip(), _answer_format(schema).strip()]
    if stricter:
        parts.append(_stricter_block(schema, feedback))
    prompt = "\n\n".join(parts) + "\n"
    data = prompt.encode(errors="replace")  # a lone surrogate would poison hash and event
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptError(f"{name}: the prompt has {len(data)} bytes of {MAX_PROMPT_BYTES}")
    return data.decode()


def _answer_format(schema: str | None) -> str:
    return _ANSWER_WITHOUT_SCHEMA if schema is None else _ANSWER.replace("{schema}", schema)


def _stricter_block(schema: str | None, feedback: Sequence[Problem]) -> str:
    block = _STRICTER.replace("{schema}", "any JSON value" if schema is None else schema)
    if feedback:
        block += f"\nPrevious error: {'; '.join(_told(p) for p in feedback[:MAX_FEEDBACK])}"
    return block.strip()


def _told(problem: Problem) -> str:
    """One error for the model. It may quote what the model wrote, so it is untrusted too."""
    path = neutral_line(problem["path"], _MAX_PATH_BYTES)
    rule = neutral_line(problem["rule"], _MAX_PATH_BYTES)
    return f"{path} ({rule}): {neutral_line(problem['message'], MAX_MESSAGE_BYTES)}"


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema as the model is shown it, without the annotations it has no use for."""
    shown = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    return json.dumps(shown, indent=2, ensure_ascii=False)
