"""What is loaded from nothing, from a file and from the environment, and how sections reach the components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admission.config.document import MAX_DEPTH, parse_document
from admission.config.load import Loaded, load
from admission.config.schema import ROOTS, control_address, state_directory
from admission.core.limits.fixed import FixedConfig
from admission.core.settings import ControllerConfig
from admission.runtime.settings import ServerConfig
from admission.vocabulary import Mode, PriorityClass
from telemetry.config import TelemetryConfig


def loaded(tmp_path: Path, text: str, **environ: str) -> Loaded:
    """A configuration from text."""
    file = tmp_path / "tidegate.yaml"
    file.write_text(text)
    return load(file, environ)


def test_nothing_configured_is_one_target_in_shadow_on_loopback() -> None:
    """A newcomer types one command; it must neither refuse requests nor be reachable from elsewhere."""
    settings = load(None, {}).settings

    (target,) = settings.targets
    assert target.name == "default"
    assert target.controller == ControllerConfig()
    assert target.controller.mode is Mode.SHADOW
    assert target.binding.metrics_urls == ("http://127.0.0.1:8000/metrics",)
    assert settings.telemetry == TelemetryConfig()
    assert settings.listen.grpc == ("127.0.0.1:50051",)
    assert settings.listen.http == "127.0.0.1:9464"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "---\n", "listen:\ntargets:\nlog: {}\n", "targets: []\n"]
)
def test_an_empty_file_is_no_configuration(tmp_path: Path, text: str) -> None:
    """A template whose lines are all comments must start."""
    assert loaded(tmp_path, text).settings == load(None, {}).settings


def test_what_is_written_changes_and_what_is_not_stays(tmp_path: Path) -> None:
    """One patience must not reset the class's other settings, nor the other classes."""
    (target,) = loaded(tmp_path, "targets: [{classes: {batch: {patience_s: 5}}}]").settings.targets

    default = ControllerConfig().classes
    assert target.controller.classes[PriorityClass.BATCH].patience_s == 5
    assert target.controller.classes[PriorityClass.BATCH].slo == default[PriorityClass.BATCH].slo
    assert target.controller.classes[PriorityClass.BATCH].queue_tickets == 10_000
    assert target.controller.classes[PriorityClass.INTERACTIVE] == default[PriorityClass.INTERACTIVE]


def test_an_slo_of_the_target_is_the_slo_of_its_class(tmp_path: Path) -> None:
    """People think of the SLO first; they should not have to know where the core keeps it."""
    text = "targets: [{slo: {interactive: {ttft_s: 1.5}, batch: {ttft_s: null}}, classes: {interactive: {queue_tickets: 7}}}]"
    (target,) = loaded(tmp_path, text).settings.targets

    interactive = target.controller.classes[PriorityClass.INTERACTIVE]
    assert (interactive.slo.ttft_s, interactive.queue_tickets) == (1.5, 7)
    assert target.own_slo == {PriorityClass.INTERACTIVE, PriorityClass.BATCH}


def test_the_algorithm_chooses_the_class_of_the_limit(tmp_path: Path) -> None:
    """Settings of one law must not be silently accepted by another."""
    (target,) = loaded(
        tmp_path, "targets: [{limit: {algorithm: fixed, limit_tokens: 9000}}]"
    ).settings.targets

    assert target.controller.limit == FixedConfig(limit_tokens=9000)


@pytest.mark.parametrize(
    ("word", "mode"), [("off", Mode.OFF), ("Enforce", Mode.ENFORCE), ("shadow", Mode.SHADOW)]
)
def test_modes_are_words_even_where_yaml_would_see_a_flag(tmp_path: Path, word: str, mode: Mode) -> None:
    """YAML 1.1 reads `off` as false: the one mode that matters at night must not depend on quotes."""
    assert loaded(tmp_path, f"targets: [{{mode: {word}}}]").settings.targets[0].controller.mode is mode


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("2026-01-02", "2026-01-02"),
        ("true", True),
        ("~", None),
        ("1e3", 1000.0),
        ("-4", -4),
        ("1_000", 1000),
        (".5", 0.5),
        ("''", ""),
    ],
)
def test_scalars_are_what_they_look_like(text: str, value: Any) -> None:
    """Surprises of YAML 1.1 (octal, base 60, dates, yes and no) are mistakes waiting to happen."""
    (found,) = parse_document(f"key: {text}", "test").value.values()

    assert (type(found), found) == (type(value), value)


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    """Ten targets with the same SLO should not be written ten times."""
    text = "targets:\n- &a {name: a, mode: enforce}\n- {<<: *a, name: b}\n"
    first, second = loaded(tmp_path, text).settings.targets

    assert (first.name, second.name, second.controller.mode) == ("a", "b", Mode.ENFORCE)


def test_depth_is_bounded_and_generous() -> None:
    """The bound must stop a file that names itself, and nothing that a person writes."""
    assert parse_document("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), "test").value


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """A container's image carries the file; the deployment changes one thing."""
    text = "listen: {http: '127.0.0.1:1'}\ntargets: [{name: chat-7b, mode: shadow}, {name: embed}]\n"
    environ = {
        "TIDEGATE_LISTEN__HTTP": "127.0.0.1:2",
        "TIDEGATE_TARGETS__CHAT_7B__MODE": "enforce",
        "TIDEGATE_TARGETS__1__SPANS": "{service.name: embed}",
        "TIDEGATE_TARGETS__2__NAME": "third",
        "TIDEGATE_STATE_DIR": "none",
    }
    settings = loaded(tmp_path, text, **environ).settings

    assert settings.listen.http == "127.0.0.1:2"
    assert settings.targets[0].controller.mode is Mode.ENFORCE
    assert settings.targets[1].binding.spans == {"service.name": "embed"}
    assert [target.name for target in settings.targets] == ["chat-7b", "embed", "third"]
    assert settings.state_dir == "none"


@pytest.mark.parametrize("key", ["0", "DEFAULT"])
def test_the_default_target_can_be_set_without_a_file(key: str) -> None:
    """`docker run -e` is a configuration too."""
    settings = load(None, {f"TIDEGATE_TARGETS__{key}__MODE": "enforce"}).settings

    assert settings.targets[0].controller.mode is Mode.ENFORCE


@pytest.mark.parametrize(
    "name",
    [
        "TIDEGATE_SERVICE_HOST",
        "TIDEGATE_PORT",
        "TIDEGATE_PORT_50051_TCP_ADDR",
        "TIDEGATE_SERVICE_PORT_GRPC",
        "TIDEGATE_ADDRESS",
        "TIDEGATE_TARGET",
        "TIDEGATE_TOKEN",
        "TIDEGATE_CONFIG",
    ],
)
def test_variables_of_kubernetes_and_of_the_client_are_left_alone(name: str) -> None:
    """A Service named tidegate puts such names into every pod beside it: a sidecar that refused them would not start."""
    assert load(None, {name: "tcp://10.0.0.1:50051"}).settings == load(None, {}).settings


def test_an_empty_variable_is_empty_text() -> None:
    """`-e TIDEGATE_LISTEN__HTTP=` switches the listener off, as an empty text in the file does."""
    assert load(None, {"TIDEGATE_LISTEN__HTTP": ""}).settings.listen.http == ""


def test_tls_of_the_listeners_reaches_the_server(tmp_path: Path) -> None:
    """What is said once must hold for every listener."""
    text = "listen: {grpc: ['0.0.0.0:1', 'unix:/run/t.sock'], tls: {cert: c, key: k}, roles: {token_file: t}}"
    server = loaded(tmp_path, text).settings.server

    assert [listener.address for listener in server.listeners] == ["0.0.0.0:1", "unix:/run/t.sock"]
    assert {listener.tls.cert for listener in server.listeners} == {"c"}
    assert server.roles.token_file == "t"


def test_every_target_reaches_telemetry(tmp_path: Path) -> None:
    """A target that telemetry does not know is never scraped."""
    settings = loaded(tmp_path, "targets: [{name: a}, {name: b, gpus: [GPU-1]}]").settings

    assert [binding.name for binding in settings.telemetry.targets] == ["a", "b"]
    assert settings.telemetry.targets[1].gpus == ("GPU-1",)


def test_sections_are_those_that_the_environment_may_name() -> None:
    """A section without a variable would be a trap for containers."""
    environ = {f"TIDEGATE_{root.upper()}": "~" for root in ROOTS if root != "state_dir"}

    assert load(None, environ).settings == load(None, {}).settings


def test_defaults_of_the_server_stay_when_one_value_is_set(tmp_path: Path) -> None:
    """Nested sections merge like the others."""
    server = loaded(tmp_path, "server: {session: {heartbeat_s: 2}}").settings.server

    assert server.session.heartbeat_s == 2
    assert server.unary == ServerConfig().unary


def test_the_state_directory_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under systemd it is the unit's, else the user's; `none` is memory only."""
    settings = load(None, {}).settings
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    user = state_directory(settings)
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/tidegate:/var/lib/other")

    assert user == tmp_path / "tidegate"
    assert state_directory(settings) == Path("/var/lib/tidegate")
    assert state_directory(load(None, {"TIDEGATE_STATE_DIR": "none"}).settings) is None


def test_the_control_address_is_a_socket_of_the_user_unless_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control must never be where clients are."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")

    assert control_address(load(None, {}).settings) == "unix:/run/user/7/tidegate/control.sock"
    configured = load(None, {"TIDEGATE_LISTEN__CONTROL": "unix:/run/c.sock"}).settings
    assert control_address(configured) == "unix:/run/c.sock"
