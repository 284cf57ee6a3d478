"""How a command that talks to Kafka ends when it cannot go on: one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from assay.errors import AssayError


@contextmanager
def ending_cleanly(command: str, *, pipe_code: int) -> Iterator[None]:
    """AssayError, alone or out of a task group, becomes a line on stderr and exit code 1.

    `pipe_code` is the exit code when the reader of the output has gone (`| head -1`). Ctrl-C is
    left to the command. What aiokafka logs on the way is not shown: the error says it.
    """
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        yield
    except (Exception, BaseExceptionGroup) as raised:
        error = _cause(raised)
        if isinstance(error, BrokenPipeError):
            # Python would complain once more when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(pipe_code) from None
        if isinstance(error, AssayError):
            print(f"assay {command}: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        raise


def _cause(error: BaseException) -> BaseException:
    """The first error of a group: the one that made the task group give up."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
