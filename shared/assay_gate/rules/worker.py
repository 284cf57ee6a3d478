"""The process in which asteval runs: killable, with a memory limit, without files or network.

Started by path and reading one JSON line for each unit from stdin:
`{"seed", "seconds", "record", "tasks": [{"expr", "when"?, "name"?}]}`. For each task one JSON
line goes to stdout: `{"truth", "value"?}`, `{"skipped"}` or `{"error", "message"}`.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import random
import resource
import signal
import sys
from typing import Any

sys.modules["numpy"] = None  # type: ignore[assignment]  # asteval must not load it: slow and large

from asteval import Interpreter  # noqa: E402
from asteval.astutils import make_symbol_table  # noqa: E402

_MISSING = ("NameError", "KeyError", "AttributeError", "IndexError")
_PARENT_DEATH_SIGNAL = 1


def main() -> None:
    """Serves units until stdin ends."""
    megabytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    replies.write('{"ready": true}\n')
    replies.flush()
    for line in sys.stdin.buffer:
        unit = json.loads(line)
        # A second net below the parent's deadline: the default action ends this process.
        signal.setitimer(signal.ITIMER_REAL, 2 * unit["seconds"] + 1)
        for reply in _serve(unit):
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _serve(unit: dict[str, Any]) -> Any:
    symbols = make_symbol_table(use_numpy=False)
    for name in ("open", "id"):  # files; addresses, which another worker would not repeat
        symbols.pop(name, None)
    record = unit["record"]
    sink = io.StringIO()
    interpreter = Interpreter(symtable=symbols, use_numpy=False, writer=sink, err_writer=sink)
    symbols["random"] = random.Random(unit["seed"])
    symbols["dir"] = lambda *value: dir(*value) if value else sorted(record)
    symbols.update(record)
    for task in unit["tasks"]:
        yield _evaluate(interpreter, task, symbols, record)
        sink.seek(0)
        sink.truncate()


def _evaluate(
    interpreter: Any, task: dict[str, Any], symbols: dict[str, Any], record: dict[str, Any]
) -> dict[str, Any]:
    when = task.get("when")
    if when is not None:
        truth, value, error = _run(interpreter, when)
        if error is not None and error[0] == "MemoryError":
            return {"error": error[0], "message": error[1]}
        if error is not None and error[0] not in _MISSING:
            return {"skipped": f"{error[0]}: {error[1]}"}
        if not truth:
            return {"skipped": ""}
    truth, value, error = _run(interpreter, task["expr"])
    if error is not None:
        return {"error": error[0], "message": error[1]}
    if "name" not in task:
        return {"truth": truth}
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return {"error": "TypeError", "message": f"the result {str(value)[:80]!r} is no JSON value"}
    symbols[task["name"]] = record[task["name"]] = value
    return {"truth": truth, "value": value}


def _run(interpreter: Any, expression: str) -> tuple[bool, Any, tuple[str, str] | None]:
    """(truth, value, error as (type, message)) of one expression."""
    try:
        value = interpreter.eval(expression.strip(), show_errors=False, raise_errors=True)
        return bool(value), value, None
    except MemoryError:
        return False, None, ("MemoryError", "out of memory")
    except BaseException as error:
        kind = type(error).__name__
        message = (str(error).splitlines() or [""])[-1].removeprefix(f"{kind}: ")
        return False, None, (kind, message[:200])
    finally:
        interpreter._interrupt = None


if __name__ == "__main__":
    main()
