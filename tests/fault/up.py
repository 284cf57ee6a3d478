"""`assay up` with some settings of its services replaced: `python -m tests.fault.up OPTIONS`.

A fault run keeps stores where it can take them away. FAULT_SETTINGS is a JSON object of variables;
each replaces the one of its name in whichever service's environment has it, or in that of one
service where its name stands before it ("signer ASSAY_…").
"""

from __future__ import annotations

import json
import os
from typing import Any

from assay.cli.main import main
from deploy.dev.plan import StackPlan

VARIABLE = "FAULT_SETTINGS"


class ReplacedSettings:
    """In place of `StackPlan.environment`."""

    def __init__(self, replaced: dict[str, str]) -> None:
        self._replaced = replaced
        self._original = StackPlan.environment

    def __call__(self, plan: StackPlan, service: str, **addresses: Any) -> dict[str, str]:
        made = self._original(plan, service, **addresses)
        every = {name: self._replaced.get(name, value) for name, value in made.items()}
        return {n: self._replaced.get(f"{service} {n}", value) for n, value in every.items()}


if __name__ == "__main__":
    replaced = ReplacedSettings(json.loads(os.environ.pop(VARIABLE)))
    StackPlan.environment = lambda plan, service, **to: replaced(plan, service, **to)  # type: ignore[method-assign]
    main()
