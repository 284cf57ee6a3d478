"""The order of the model stage: find the process, check the input, ask, tell what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from assay.events import GenerationRequested, Meta
from assay_gate.chain import EXPRESSION_FAILED, Ask, Failed, first_request
from assay_gate.process import Process, ProcessError, PromptError
from assay_gate.process_registry import ProcessRegistry
from assay_gate.verdict import problem
from assay_runtime.failures import DeadLetter
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.domain.answering import (
    CallLimits,
    answered_fields,
    prepare_call,
    unasked_fields,
)
from services.scorer.domain.provider import AttemptFailed, ModelError, ModelReply, PatienceExhausted
from services.scorer.domain.question import Question, Unasked


class ScorerHandler:
    """Answers generation requests with the processes it was given.

    A request that records a process hash is answered under exactly that folder, or refused;
    one without a hash under the current version of that id, which its answer then records.
    """

    def __init__(
        self, processes: Iterable[Process], endpoint: Endpoint, limits: CallLimits
    ) -> None:
        self._processes = (
            processes if isinstance(processes, ProcessRegistry) else ProcessRegistry(processes)
        )
        self._endpoint = endpoint
        self._limits = limits

    async def question(
        self, request: GenerationRequested, *, unsealed: bool = False
    ) -> Question | Unasked:
        """What the request comes to; `unsealed` says that no service vouches for it. Raises
        DeadLetter for one that can never be answered: an unknown process or step, or an input its
        schema refuses."""
        process = self._process_of(request)
        meta = _stamped(process, request.meta, unsealed)
        for wrong in process.input_problems(request.input, request.meta.step):
            message = f"input {wrong['path']}: {wrong['message']}"
            raise _refusal(request, message, "invalid_input", _pointer(wrong["path"]))
        reached = await self._reached(process, meta, request)
        if isinstance(reached, Failed):
            provider, message = self._endpoint.provider, reached.errors[0]["message"]
            return Unasked(meta, unasked_fields(
                reached.input, provider.name, provider.model, EXPRESSION_FAILED, message
            ))  # fmt: skip
        record = reached.input
        key = str(record[process.key]) if process.key else meta.request_id
        feedback = [problem(e.path, e.rule, e.message) for e in request.feedback]
        try:
            call = prepare_call(
                process, reached.step, record, key, meta.attempt, feedback, self._limits,
                meta.unit_id or "",
            )  # fmt: skip
        except (ProcessError, PromptError) as error:
            raise _refusal(request, str(error), "invalid_input", "/input") from error
        return Question(process, meta, record, call, meta.attempt == 1 and not feedback)

    async def ask(self, question: Question) -> tuple[dict[str, Any], float | None]:
        """All fields of llm.generation.answered.v1 but `meta`, and the seconds that the model was
        at it, None where none was asked.

        Waits in place while the model is away.
        """
        provider = self._endpoint.provider
        result: ModelReply | ModelError
        try:
            result = await self._endpoint.generate(question.call)
        except (AttemptFailed, PatienceExhausted) as error:
            result = error
        fields = answered_fields(
            question.input, question.call, provider.name, provider.model, result
        )
        return fields, result.seconds

    def _process_of(self, request: GenerationRequested) -> Process:
        """The process a request names; DeadLetter if it is not one of ours."""
        meta = request.meta
        current = self._processes.current(meta.process_id or "")
        recorded = self._processes.by_hash(meta.process_hash or "")
        if recorded is not None and recorded.id == meta.process_id:
            return recorded
        if current is None:
            raise _refusal(
                request, f"there is no process {meta.process_id!r}", "unknown_process", "/meta"
            )
        if meta.process_hash is not None or meta.process_version not in (None, current.version):
            wanted = f"{meta.process_version} ({(meta.process_hash or 'no hash')[:12]})"
            raise _refusal(
                request,
                f"process {current.id!r} is at {current.version} ({current.hash[:12]}), the "
                f"request is for {wanted}",
                "unknown_process_version",
                "/meta",
            )
        return current

    async def _reached(
        self, process: Process, meta: Meta, request: GenerationRequested
    ) -> Ask | Failed:
        """The question a request leads to; expression steps before it are computed in a thread,
        because their worker may take its whole time limit."""
        given = request.meta.step
        start = process.steps[0].name if given is None else given
        try:
            if process.step(start).kind == "model":
                return Ask(start, request.input, meta)
            return await asyncio.to_thread(
                first_request, process, meta, request.input, meta.unit_id or "", start
            )
        except ProcessError as error:
            raise _refusal(request, str(error), "invalid_input", "/input") from error


def _stamped(process: Process, meta: Meta, unsealed: bool) -> Meta:
    """The request's meta with the process that answers it: what the answer is judged by.

    A shadow process marks its answers, and an unsealed request marks them whatever it says of
    itself, so that none of them can be signed.
    """
    return meta.model_copy(
        update={
            "process_version": process.version,
            "process_hash": process.hash,
            "step": _asking_step(process, meta.step),
            "unit_id": meta.unit_id or meta.request_id,
            "shadow": meta.shadow or process.shadow is not None,
            "unsealed": unsealed,
        }
    )


def _asking_step(process: Process, named: str | None) -> str:
    """The step that asks a model: the one the request names, or the first from there on."""
    if named is None:
        return process.first_model_step
    steps = [step.name for step in process.steps]
    start = steps.index(named) if named in steps else len(steps)
    reached = (step.name for step in process.steps[start:] if step.kind == "model")
    return next(reached, named)


def _refusal(request: GenerationRequested, message: str, code: str, pointer: str) -> DeadLetter:
    return DeadLetter(message, code=code, pointer=pointer, request_id=request.meta.request_id)


def _pointer(path: str) -> str:
    """JSON pointer of an input problem's `$.a.b[0]` path."""
    return "/input" + path.removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/")
