"""The order of the model stage: find the process, check the input, ask, tell what came back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from assay.events import GenerationRequested
from assay_gate.process import Process, ProcessError, PromptError
from assay_gate.verdict import problem
from assay_runtime.failures import DeadLetter
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.domain.answering import CallLimits, answered_fields, prepare_call
from services.scorer.domain.provider import AttemptFailed, ModelError, ModelReply, PatienceExhausted


class ScorerHandler:
    """Answers generation requests with the processes it was given.

    A request that records a process hash is answered under exactly that folder, or refused;
    one without a hash under the process of that id.
    """

    def __init__(
        self, processes: Iterable[Process], endpoint: Endpoint, limits: CallLimits
    ) -> None:
        known = list(processes)
        self._by_id = {process.id: process for process in known}
        self._by_hash = {process.hash: process for process in known}
        self._endpoint = endpoint
        self._limits = limits

    def process_of(self, request: GenerationRequested) -> Process:
        """The process a request names; DeadLetter if it is not one of ours."""
        meta = request.meta
        if meta.process_id is None or meta.process_id not in self._by_id:
            raise self._refusal(
                request, f"there is no process {meta.process_id!r}", "unknown_process", "/meta"
            )
        process = self._by_id[meta.process_id]
        if meta.process_hash is not None:
            process = self._by_hash.get(meta.process_hash, process)
            if (process.id, process.hash) != (meta.process_id, meta.process_hash):
                raise self._refusal(
                    request,
                    f"process {process.id!r} is at {process.version} ({process.hash[:12]}), the "
                    f"request is for {meta.process_version} ({meta.process_hash[:12]})",
                    "unknown_process_version",
                    "/meta",
                )
        return process

    def step_of(self, request: GenerationRequested) -> str:
        """The step a request names, or the first that asks a model."""
        return request.meta.step or self.process_of(request).first_model_step

    async def answer(self, request: GenerationRequested) -> dict[str, Any]:
        """All fields of llm.generation.answered.v1 but `meta`.

        Waits in place while the model is away. Raises DeadLetter for a request that can never be
        answered: an unknown process or step, or an input its schema refuses.
        """
        process = self.process_of(request)
        record = request.input
        for wrong in process.input_problems(record):
            message = f"input {wrong['path']}: {wrong['message']}"
            raise self._refusal(request, message, "invalid_input", _pointer(wrong["path"]))
        key = str(record[process.key]) if process.key else request.meta.request_id
        feedback = [problem(e.path, e.rule, e.message) for e in request.feedback]
        try:
            call = prepare_call(
                process, self.step_of(request), record, key, request.meta.attempt, feedback,
                self._limits,
            )  # fmt: skip
        except (ProcessError, PromptError) as error:
            raise self._refusal(request, str(error), "invalid_input", "/input") from error
        result: ModelReply | ModelError
        try:
            result = await self._endpoint.generate(call)
        except (AttemptFailed, PatienceExhausted) as error:
            result = error
        provider = self._endpoint.provider
        return answered_fields(record, call, provider.name, provider.model, result)

    @staticmethod
    def _refusal(request: GenerationRequested, message: str, code: str, pointer: str) -> DeadLetter:
        return DeadLetter(message, code=code, pointer=pointer, request_id=request.meta.request_id)


def _pointer(path: str) -> str:
    """JSON pointer of an input problem's `$.a.b[0]` path."""
    return "/input" + path.removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/")
