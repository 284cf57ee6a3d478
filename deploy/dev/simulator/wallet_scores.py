"""The answer to a wallet-score prompt: a score that follows from the features in its section 1.

Only the features and the questionnaire count: neither temperature nor the block about a previous
attempt changes the answer. The total is the weighted sum of SPEC S1.6.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DIMENSIONS = ("activity", "maturity", "diversity", "riskBehavior", "surveyMatch")
_WEIGHTS = (2.0, 2.0, 2.0, 2.5, 1.5)
_NEUTRAL = 50
_LONGEST_FIGURE = 1e15
_SECTIONS = re.compile(r"^## 1\.(.*?)^## 2\.(.*)^## 3\.", re.DOTALL | re.MULTILINE)
_FEATURE = re.compile(r"^- (\w+): (.*)$", re.MULTILINE)
_ANSWER = re.compile(r"^A\d+: (.*)$", re.MULTILINE)
_NOT_ANSWERED = "(not answered)"


@dataclass(frozen=True, slots=True)
class WalletPrompt:
    """What a wallet-score prompt says: the features, and the text about the borrower."""

    features: Mapping[str, Any]
    profile: str

    @classmethod
    def read(cls, prompt: str) -> WalletPrompt:
        """The first three-section part of a prompt; without one, no features and no profile."""
        found = _SECTIONS.search(prompt)
        if found is None:
            return cls({}, "")
        features = {}
        for name, text in _FEATURE.findall(found[1]):
            try:
                features[name] = json.loads(text)
            except ValueError:
                continue
        return cls(features, found[2].strip())

    def number(self, name: str) -> float:
        """A feature as a finite number that is not negative; 0 if it is none."""
        value = self.features.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0.0
        return float(value) if math.isfinite(value) and value > 0 else 0.0


def total(breakdown: Mapping[str, int]) -> int:
    """The score a breakdown adds up to, 0 to 1000 (SPEC S1.6), rounded half up."""
    weights = zip(DIMENSIONS, _WEIGHTS, strict=True)
    return math.floor(sum(breakdown[name] * weight for name, weight in weights) + 0.5)


def score(prompt: str) -> dict[str, Any]:
    """A complete wallet score, its keys in the order of the published schema."""
    wallet = WalletPrompt.read(prompt)
    breakdown = {
        "activity": _activity(wallet),
        "maturity": _maturity(wallet),
        "diversity": _diversity(wallet),
        "riskBehavior": _risk_behaviour(wallet),
        "surveyMatch": _survey_match(wallet.profile),
    }
    return {
        "scoreBreakdown": breakdown,
        "score": total(breakdown),
        "reasoning": _reasoning(wallet, breakdown),
        "risk_factors": _risk_factors(wallet),
        "strengths": _strengths(wallet),
    }


def _percent(value: float) -> int:
    return max(0, min(100, math.floor(value + 0.5)))


def _rising(value: float, full: float) -> float:
    """0 to 1, fast at first, 1 from `full` on."""
    return min(1.0, math.log1p(value) / math.log1p(full))


def _activity(wallet: WalletPrompt) -> int:
    return _percent(
        50 * _rising(wallet.number("totalTransactions"), 3000)
        + 30 * _rising(wallet.number("avgTxsPerMonth"), 100)
        + 20 * _rising(wallet.number("uniqueCounterparties"), 500)
    )


def _maturity(wallet: WalletPrompt) -> int:
    age = min(1.0, wallet.number("walletAge") / 1460)
    return _percent(85 * age + 15 * _rising(wallet.number("poapCount"), 10))


def _diversity(wallet: WalletPrompt) -> int:
    spread = max(0.0, 1 - wallet.number("concentrationRisk")) if wallet.number("numTokens") else 0.0
    return _percent(
        35 * min(1.0, wallet.number("protocolsUsed") / 5)
        + 30 * min(1.0, wallet.number("diversificationScore") / 100)
        + 20 * _rising(wallet.number("numTokens"), 50)
        + 15 * spread
    )


def _risk_behaviour(wallet: WalletPrompt) -> int:
    borrowed = wallet.number("borrowCount")
    if borrowed == 0:
        return _percent(_NEUTRAL + 15 * _rising(wallet.number("supplyCount"), 20))
    repaid = min(1.0, wallet.number("repayCount") / borrowed)
    return _percent(40 + 55 * repaid - 25 * min(3.0, wallet.number("liquidateCount")))


def _survey_match(profile: str) -> int:
    answers = _ANSWER.findall(profile)
    if not answers:
        return _NEUTRAL
    given = [answer for answer in answers if answer != _NOT_ANSWERED]
    words = sum(min(20, len(answer.split())) for answer in given)
    return _percent(30 + 40 * len(given) / len(answers) + 20 * _rising(words, 60))


def _reasoning(wallet: WalletPrompt, breakdown: Mapping[str, int]) -> str:
    figures = {name: _figure(wallet.number(name)) for name in _CITED}
    text = (
        "Simulated rating: {totalTransactions} transactions with {uniqueCounterparties} "
        "counterparties in {walletAge} days; {protocolsUsed} protocols and {numTokens} tokens; "
        "{repayCount} of {borrowCount} loans repaid, {liquidateCount} liquidations."
    ).format(**figures)
    return f"{text} Strongest dimension: {max(breakdown, key=lambda name: breakdown[name])}."


def _figure(number: float) -> str:
    return f"{number:.0f}" if number < _LONGEST_FIGURE else f"{number:g}"


_CITED = (
    "totalTransactions", "uniqueCounterparties", "walletAge", "protocolsUsed", "numTokens",
    "repayCount", "borrowCount", "liquidateCount",
)  # fmt: skip


def _risk_factors(wallet: WalletPrompt) -> list[str]:
    borrowed, repaid = wallet.number("borrowCount"), wallet.number("repayCount")
    signs = {
        "Past liquidations": wallet.number("liquidateCount") > 0,
        "Loans not repaid yet": repaid < borrowed,
        "High token concentration": wallet.number("concentrationRisk") >= 0.6,
        "Young wallet": wallet.number("walletAge") < 180,
        "No lending history": borrowed == 0,
    }
    return [text for text, present in signs.items() if present]


def _strengths(wallet: WalletPrompt) -> list[str]:
    borrowed, repaid = wallet.number("borrowCount"), wallet.number("repayCount")
    signs = {
        "Consistent repayment history": 0 < borrowed <= repaid,
        "Long account history": wallet.number("walletAge") >= 730,
        "Steady activity": wallet.number("avgTxsPerMonth") >= 20,
        "Several lending and trading protocols": wallet.number("protocolsUsed") >= 3,
    }
    return [text for text, present in signs.items() if present]
