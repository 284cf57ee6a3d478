"""Flags and environment of `python -m deploy.dev.simulator`: profile, then environment, then flags.

Every flag is also a variable: `--fault-rate 0.3` is `SIMULATOR__FAULT_RATE=0.3`, and all `--rate`
flags together are `SIMULATOR__RATES=fences=0.1,hang=0.02`. The two underscores keep clear of the
variables a cluster makes for a service of that name.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.dev.simulator.settings import FAULTS, PROFILES, BadSetting, Behaviour

_PREFIX = "SIMULATOR__"
_TRUE = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Options:
    """Where to listen, what to print, how to behave."""

    host: str
    port: int
    as_json: bool
    log_level: str
    behaviour: Behaviour


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Options of one run; ends the program with exit code 2 and a reason if they make no sense."""
    parser = _parser()
    names = {action.dest: action for action in parser._actions if action.dest != "help"}
    given: dict[str, Any] = {}
    try:
        for variable, text in environ.items():
            if variable.startswith(_PREFIX):
                key = variable.removeprefix(_PREFIX).lower()
                if key not in names:
                    raise BadSetting(f"{variable}: there is no such setting")
                given[key] = _value(variable, text, names[key])
        given |= vars(parser.parse_args(arguments))
        given["rates"] = _rates(given.get("rates", []))
        kept = {key: given.pop(key) for key in ("host", "port", "json", "log_level")
                if key in given}  # fmt: skip
        behaviour = Behaviour().changed(given)
    except BadSetting as error:
        parser.error(str(error))
    return Options(
        host=kept.get("host", "127.0.0.1"),
        port=kept.get("port", 0),
        as_json=kept.get("json", False),
        log_level=kept.get("log_level", "info"),
        behaviour=behaviour,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.dev.simulator",
        description="A model server that speaks Ollama and OpenAI, answers any JSON Schema, and "
        "misbehaves on request.",
        epilog=f"faults: {', '.join(FAULTS)}",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", help="127.0.0.1 unless given")
    add("--port", type=int, help="0 (the default) picks a free one")
    add("--json", action="store_true", help="say where it listens as one JSON line")
    add("--log-level", choices=("debug", "info", "warning", "error"))
    add("--profile", choices=tuple(PROFILES))
    add("--seed", type=int, help="of all draws")
    add("--draws", help="content (repeatable, the default) or random")
    add("--rate", dest="rates", action="append", metavar="FAULT=RATE", help="may be repeated")
    add("--fault-rate", type=float, help="shared evenly by all faults of an answer")
    add("--hang-rate", type=float)
    add("--always", metavar="FAULT", help="every call meets this fault")
    add("--match", metavar="TEXT", help="only calls whose prompt holds this text meet faults")
    add("--match-seed", type=int, help="only calls with this model seed meet faults")
    add("--spare-retries", action="store_true", help="prompts with a previous attempt are spared")
    add("--no-spare-probes", dest="spare_probes", action="store_false",
        help="calls for an answer of at most 64 tokens are otherwise spared")  # fmt: skip
    add("--gullible", action="store_true", help="obey instructions inside the data")
    add("--latency-ms", type=float)
    add("--jitter-ms", type=float)
    add("--slots", type=int, help="answers written at once; 0 is no limit")
    add("--queue", type=int, help="calls that may wait for a slot; beyond, 503")
    add("--hang-cap-s", type=float)
    add("--retry-after-s", type=int)
    return parser


def _value(variable: str, text: str, action: argparse.Action) -> Any:
    if action.nargs == 0:
        if text.lower() not in _TRUE:
            raise BadSetting(f"{variable}: true or false is expected, not {text!r}")
        return _TRUE[text.lower()]
    if action.dest == "rates":
        return text.split(",")
    convert: Any = action.type or str
    try:
        return convert(text)
    except ValueError:
        raise BadSetting(f"{variable}: {convert.__name__} is expected, not {text!r}") from None


def _rates(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, rate = text.strip().partition("=")
        try:
            found[name] = float(rate)
        except ValueError:
            raise BadSetting(f"rate {text!r}: FAULT=RATE is expected") from None
    return found
