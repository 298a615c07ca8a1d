"""The configuration builds empty, checks itself, and crosses to the telemetry process unchanged."""

from __future__ import annotations

import pytest

from telemetry.config import OtlpTls, TargetBinding, TelemetryConfig, is_loopback, split_address
from telemetry.process import decode_config, encode_config

FULL = TelemetryConfig(
    targets=(
        TargetBinding(name="a", models=("m-*", "n"), spans={"service.name": "x"}, gpus=("GPU-1",)),
        TargetBinding(name="b", kind="pooled", metrics_urls=()),
    ),
    otlp_grpc="[::1]:4317",
    otlp_http="",
    tls=OtlpTls(cert="c", key="k", client_ca="ca"),
    tokens=("secret",),
    names=("collector.example",),
    nvml=False,
)


@pytest.mark.parametrize("config", [TelemetryConfig(), FULL], ids=["empty", "full"])
def test_a_configuration_crosses_to_the_process_unchanged(config: TelemetryConfig) -> None:
    """A setting lost on the way would silently be its default there."""
    assert decode_config(encode_config(config)) == config


@pytest.mark.parametrize("junk", [b"", b"[]", b"{}", b'{"targets":[],"tls":{},"nope":1}'])
def test_junk_is_no_configuration(junk: bytes) -> None:
    """The process ends with an error instead of running with defaults."""
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        decode_config(junk)


def test_every_problem_is_named_at_once() -> None:
    """Nobody wants to find them one by one."""
    with pytest.raises(ValueError, match="scrape_interval_s") as caught:
        TelemetryConfig(
            targets=(TargetBinding(), TargetBinding()),
            otlp_grpc="4317",
            otlp_http="0.0.0.0:4318",
            scrape_interval_s=0.0,
            nvml_interval_s=0.001,
            names=("x",),
        )
    text = str(caught.value)
    for word in (
        "otlp_grpc",
        "otlp_http",
        "beyond loopback",
        "nvml_interval_s",
        "'default' appears twice",
        "names",
    ):
        assert word in text


def test_beyond_loopback_needs_tls_or_a_word() -> None:
    """Plain text on a network must be somebody's decision."""
    with pytest.raises(ValueError, match="insecure: true"):
        TelemetryConfig(otlp_grpc="0.0.0.0:4317")
    TelemetryConfig(otlp_grpc="0.0.0.0:4317", insecure=True)
    TelemetryConfig(otlp_grpc="0.0.0.0:4317", tls=OtlpTls(cert="c", key="k"))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: TargetBinding(name=""), "name"),
        (lambda: TargetBinding(metrics_urls=("localhost:8000",)), "metrics_urls"),
        (lambda: OtlpTls(cert="c"), "together"),
        (lambda: OtlpTls(client_ca="c"), "client_ca"),
        (lambda: TelemetryConfig(targets=()), "targets"),
    ],
)
def test_what_cannot_work_is_refused(make: object, word: str) -> None:
    """At construction, with the setting's name."""
    with pytest.raises(ValueError, match=word):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:4317", ("127.0.0.1", 4317)), ("[::1]:0", ("::1", 0)), (":80", ("0.0.0.0", 80))],  # noqa: S104 - nothing is bound
)
def test_addresses_are_host_and_port(address: str, parts: tuple[str, int]) -> None:
    """IPv6 in brackets; an empty host is every interface."""
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "host", "host:port", "host:99999"])
def test_anything_else_is_no_address(address: str) -> None:
    """It would end as a listener that nobody finds."""
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


@pytest.mark.parametrize(
    ("host", "inside"),
    [("localhost", True), ("127.1.2.3", True), ("::1", True), ("0.0.0.0", False), ("gpu-1", False)],  # noqa: S104 - nothing is bound
)
def test_loopback_is_what_nobody_else_reaches(host: str, inside: bool) -> None:
    """A name that might resolve to anything is not loopback."""
    assert is_loopback(host) is inside
