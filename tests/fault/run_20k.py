"""`python -m tests.fault.run_20k`: 20,000 wallet events against a misbehaving model.

30 % of the answers are faulty and 2 % of the calls hang. Prints a table, writes
build/fault-20k.json, and exits 0 only if every request has exactly one signed score and nothing
else is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from tests.fault.fault_run import RunPlan, RunResult, run
from tests.fault.findings import VIOLATIONS

RESULT = Path("build/fault-20k.json")


def main() -> int:
    options = _options()
    plan = RunPlan(
        events=options.events,
        wallets=options.wallets,
        seed=options.seed,
        broker=options.broker,
        model=options.model,
        patience_s=90.0,
    )
    result = asyncio.run(run(plan, lambda text: print(text, file=sys.stderr, flush=True)))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    print(table(result))
    print(f"written to {RESULT}")
    return 0 if result.clean else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.run_20k")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--wallets", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", default="kafka", help="embedded, kafka or HOST:PORT")
    parser.add_argument("--model", default="simulator", help="as `assay up --model`")
    return parser.parse_args()


def table(result: RunResult) -> str:
    """Violations, counts and examples as lines for a terminal."""
    findings = result.findings
    lines = [f"{result.plan.events} events, {result.seconds:.0f} s, broker {result.plan.broker}"]
    lines += [
        f"  {'?' if recovery is None else f'{recovery:.1f} s':>8}  to go on after {met.planned}"
        for met, recovery in result.inflicted
    ]
    lines += [f"  {count:>8}  {name}" for name, count in sorted(findings.counts.items())]
    lines += [f"  {findings.of(kind):>8}  {kind}: {what}" for kind, what in VIOLATIONS.items()]
    for kind, texts in findings.violations.items():
        lines += [f"{kind}: {text}" for text in texts[:3]]
    lines.append("clean" if result.clean else "NOT CLEAN")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
