"""Flags, environment and profiles of the simulator, and which of them wins."""

from __future__ import annotations

import pytest

from deploy.dev.simulator.command_line import parse
from deploy.dev.simulator.settings import ANSWER, PROFILES, REJECTED, REPAIRABLE


def test_defaults_listen_on_loopback_and_behave() -> None:
    found = parse([], {})
    assert (found.host, found.port, found.as_json) == ("127.0.0.1", 0, False)
    assert found.behaviour == PROFILES["well-behaved"]


def test_flags_win_over_the_environment_and_that_over_the_profile() -> None:
    environ = {"SIMULATOR__PROFILE": "demo", "SIMULATOR__LATENCY_MS": "5", "SIMULATOR__SEED": "3"}
    found = parse(["--seed", "4"], environ).behaviour
    assert (found.profile, found.latency_ms, found.seed) == ("demo", 5.0, 4)
    assert found.jitter_ms == PROFILES["demo"].jitter_ms


def test_rates_can_be_given_one_by_one_or_together() -> None:
    assert parse(["--rate", "nan=0.1", "--rate", "hang=0.2"], {}).behaviour.rates == {
        "nan": 0.1,
        "hang": 0.2,
    }
    assert parse([], {"SIMULATOR__RATES": "nan=0.1, hang=0.2"}).behaviour.rates == {
        "nan": 0.1,
        "hang": 0.2,
    }


def test_a_fault_rate_is_shared_by_all_faults_of_an_answer() -> None:
    found = parse(["--fault-rate", "0.3", "--hang-rate", "0.02"], {}).behaviour.rates
    assert set(found) == {*ANSWER, "hang"}
    assert sum(found[name] for name in ANSWER) == pytest.approx(0.3)
    assert dict(found) == pytest.approx(dict(PROFILES["faulty"].rates))


def test_every_flag_has_a_variable() -> None:
    environ = {"SIMULATOR__JSON": "true", "SIMULATOR__PORT": "0", "SIMULATOR__GULLIBLE": "1",
               "SIMULATOR__HOST": "::1", "SIMULATOR_PORT": "tcp://10.0.0.1:80"}  # fmt: skip
    found = parse([], environ)
    assert (found.as_json, found.host, found.behaviour.gullible) == (True, "::1", True)
    assert parse([], {"SIMULATOR__SPARE_PROBES": "false"}).behaviour.spare_probes is False
    assert parse(["--no-spare-probes"], {}).behaviour.spare_probes is False


def test_the_demo_profile_shows_repairs_and_retries() -> None:
    rates = PROFILES["demo"].rates
    assert set(rates) & set(REPAIRABLE)
    assert sum(rates.get(name, 0) for name in REJECTED) >= 0.2
    assert "hang" not in rates
