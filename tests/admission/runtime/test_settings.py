"""Listener and server settings build empty, and refuse what would be unsafe."""

from __future__ import annotations

import dataclasses

import pytest

from admission.runtime import settings
from admission.runtime.settings import JournalConfig, ListenerConfig, ServerConfig, SessionConfig, TlsFiles

CONFIGS = [
    each for each in vars(settings).values() if isinstance(each, type) and dataclasses.is_dataclass(each)
]


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_every_configuration_builds_without_arguments(kind: type) -> None:
    """An empty file must work."""
    assert kind() == kind()


@pytest.mark.parametrize("address", ["127.0.0.1:50051", "localhost:1", "[::1]:1", "unix:/run/t.sock"])
def test_loopback_and_unix_need_nothing_more(address: str) -> None:
    """The default deployment is a sidecar."""
    assert not ListenerConfig(address=address).is_exposed


@pytest.mark.parametrize("address", ["0.0.0.0:50051", "10.1.2.3:50051", "[::]:50051", "gateway:50051"])
def test_beyond_loopback_needs_tls_or_consent(address: str) -> None:
    """An open admission port lets anybody stop the service."""
    with pytest.raises(ValueError, match="beyond loopback without TLS"):
        ListenerConfig(address=address)

    assert ListenerConfig(address=address, insecure=True).is_exposed
    assert not ListenerConfig(address=address, tls=TlsFiles(cert="c", key="k")).is_exposed


@pytest.mark.parametrize("address", ["50051", "host", "127.0.0.1:x", "127.0.0.1:70000", "unix:relative", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    """With a line that names it, not a stack of gRPC."""
    with pytest.raises(ValueError, match="address"):
        ListenerConfig(address=address)


def test_control_is_never_on_the_clients_port() -> None:
    """Whoever may ask for permits may not drain the target."""
    with pytest.raises(ValueError, match="control"):
        ServerConfig(control=ListenerConfig())


def test_half_a_key_pair_is_refused() -> None:
    """It would fail at the first handshake instead."""
    with pytest.raises(ValueError, match="go together"):
        TlsFiles(cert="c")
    with pytest.raises(ValueError, match="client_ca"):
        TlsFiles(client_ca="ca")


def test_all_wrong_values_are_named_at_once() -> None:
    """One round of correction, not five."""
    with pytest.raises(ValueError, match=r"heartbeat_s.*\n.*max_waiting"):
        SessionConfig(heartbeat_s=0, max_waiting=-1)


def test_a_journal_ring_smaller_than_its_parts_is_refused() -> None:
    """It could not hold even one segment."""
    with pytest.raises(ValueError, match="max_bytes"):
        JournalConfig(max_bytes=1000)
