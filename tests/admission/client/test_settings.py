"""Settings from keyword and environment: typed, all faults at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.client.errors import SettingsError
from admission.client.settings import ClientSettings


def test_an_empty_environment_gives_the_defaults() -> None:
    """The client works without any configuration."""
    settings = ClientSettings.from_environment({})
    assert settings == ClientSettings()
    assert (settings.address, settings.fail, settings.decision_timeout_ms) == ("127.0.0.1:50051", "open", 250)
    assert settings.local_limit == 64


def test_each_variable_is_read() -> None:
    """The names are the contract with operators."""
    environment = {
        "TIDEGATE_ADDRESS": "unix:/run/t.sock",
        "TIDEGATE_TARGET": "a",
        "TIDEGATE_FAIL": "closed",
        "TIDEGATE_DECISION_TIMEOUT_MS": "100",
        "TIDEGATE_LOCAL_LIMIT": "8",
        "TIDEGATE_OFF": "1",
        "TIDEGATE_CLASS_HEADER": "x-class",
        "TIDEGATE_METRICS_PATH": "/m",
        "OTHER": "x",
    }
    settings = ClientSettings.from_environment(environment)
    assert (settings.address, settings.target, settings.fail) == ("unix:/run/t.sock", "a", "closed")
    assert (settings.decision_timeout_ms, settings.local_limit, settings.off) == (100, 8, True)
    assert (settings.class_header, settings.metrics_path) == ("x-class", "/m")


def test_keywords_win_over_the_environment() -> None:
    """Code that sets an address means it."""
    settings = ClientSettings.from_environment({"TIDEGATE_ADDRESS": "a:1"}, address="b:2")
    assert settings.address == "b:2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADDRESS", "nowhere"),
        ("ADDRESS", "host:0"),
        ("ADDRESS", "host:99999"),
        ("ADDRESS", "unix:"),
        ("FAIL", "maybe"),
        ("DECISION_TIMEOUT_MS", "0"),
        ("DECISION_TIMEOUT_MS", "fast"),
        ("LOCAL_LIMIT", "-1"),
        ("LOCAL_LIMIT", "0"),
        ("OFF", "perhaps"),
        ("TLS_CA", "/nowhere/ca.pem"),
        ("PREFIX", "llm"),
        ("ROUTES", "/a,b"),
        ("METRICS_PATH", "metrics"),
    ],
)
def test_bad_values_are_named(name: str, value: str) -> None:
    """One line says which variable and why."""
    with pytest.raises(SettingsError, match=f"TIDEGATE_{name}") as caught:
        ClientSettings.from_environment({f"TIDEGATE_{name}": value})
    assert "\n" not in str(caught.value)


def test_all_problems_come_at_once() -> None:
    """Nobody likes to restart a server four times for four mistakes."""
    environment = {"TIDEGATE_FAIL": "x", "TIDEGATE_LOCAL_LIMIT": "y", "TIDEGATE_ADDRESS": "z"}
    with pytest.raises(SettingsError) as caught:
        ClientSettings.from_environment(environment, tls_cert=__file__, colour="red")
    assert len(caught.value.problems) == 5


def test_a_directory_is_no_off_file(tmp_path: Path) -> None:
    """It exists for ever, and would switch the protection off for ever."""
    with pytest.raises(SettingsError, match="OFF_FILE"):
        ClientSettings(off_file=str(tmp_path))


@pytest.mark.parametrize(
    "address", ["10.0.0.7:50051", "sidecar:50051", "[2001:db8::1]:50051", "localhost.evil:1"]
)
def test_a_token_does_not_travel_in_clear(address: str) -> None:
    """Whoever reads it on the way has its role."""
    with pytest.raises(SettingsError, match="TIDEGATE_TOKEN would travel in clear to"):
        ClientSettings(address=address, token="secret")
    assert ClientSettings(address=address, token="secret", tls_ca=__file__).token
    assert ClientSettings(address=address).token == ""
    environment = {"TIDEGATE_ADDRESS": address, "TIDEGATE_TOKEN": "secret", "TIDEGATE_INSECURE": "1"}
    assert ClientSettings.from_environment(environment).insecure


@pytest.mark.parametrize(
    "address", ["127.0.0.1:50051", "127.1.2.3:1", "localhost:50051", "[::1]:50051", "unix:/run/t.sock"]
)
def test_a_token_may_stay_on_this_machine(address: str) -> None:
    """The loopback needs no TLS, as for the sidecar's listeners."""
    assert ClientSettings(address=address, token="secret").token == "secret"
