"""`tidegate serve` as users run it: from nothing to SIGTERM."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import grpc
import pytest

from admission.v1 import admission_service_pb2 as wire
from admission.v1 import types_pb2 as words
from admission.v1.admission_service_pb2_grpc import AdmissionServiceStub
from tests.integration.app.serving import Serving, free_port

pytestmark = pytest.mark.integration


def acquire(channel: grpc.Channel, request_id: str, **ticket: object) -> words.Decision:
    """One unary Acquire."""
    asked = words.Ticket(request_id=request_id, prompt_tokens=100, max_tokens=50, **ticket)  # type: ignore[arg-type]
    return AdmissionServiceStub(channel).Acquire(wire.AcquireRequest(ticket=asked), timeout=5).decision


def release(channel: grpc.Channel, request_id: str) -> bool:
    """Gives it back."""
    finish = words.Finish(outcome=words.OUTCOME_OK, output_tokens=20)
    request = wire.ReleaseRequest(request_id=request_id, finish=finish)
    return AdmissionServiceStub(channel).Release(request, timeout=5).known


def test_a_permit_is_given_seen_in_status_and_metrics_and_given_back(serving: Serving) -> None:
    """The whole path at once: gRPC in, controller, monitor, exporter, commands."""
    serving.start()
    with serving.channel() as channel:
        decision = acquire(channel, "one")
        (target,) = serving.status()["targets"]
        known = release(channel, "one")
    _, page = serving.get("/metrics")

    assert decision.verdict == words.VERDICT_ADMITTED
    assert (target["in_flight"], target["mode"]) == (1, "MODE_SHADOW")
    assert known
    count = 'tidegate_decisions_total{class="interactive",reason="",target="default",verdict="admitted"} 1.0'
    assert count in page
    assert 'tidegate_mode{mode="shadow",target="default"} 1.0' in page
    assert "tidegate_decision_seconds_count 1.0" in page
    assert 'tidegate_finished_total{class="interactive",outcome="ok",target="default"} 1.0' in page


def test_status_is_readable_and_says_that_the_slo_is_nobodys_choice(serving: Serving) -> None:
    """The first look of a newcomer."""
    serving.start()
    result = serving.run("status")

    assert result.returncode == 0
    assert "SHADOW (records, refuses nothing)" in result.stdout
    assert "SLO is the default, not set by you" in result.stdout
    assert "mode=shadow" in serving.log()
    assert 'slo="default, not set by you"' in serving.log()


def test_mode_limit_and_drain_act_at_once(serving: Serving) -> None:
    """Levers that wait for a restart are no levers."""
    serving.start()
    assert serving.run("mode", "enforce").returncode == 0
    assert serving.run("limit", "5_000", "--for", "60").returncode == 0
    (target,) = serving.status()["targets"]
    assert (target["mode"], target["limit_tokens"]) == ("MODE_ENFORCE", "5000")

    assert serving.run("drain").returncode == 0
    assert serving.get("/readyz") == (503, "draining\n")
    with serving.channel() as channel:
        refused = acquire(channel, "one")
    assert (refused.verdict, refused.reason) == (words.VERDICT_REJECTED, words.REASON_DRAINING)

    assert serving.run("drain", "--stop").returncode == 0
    assert serving.get("/readyz") == (200, "ready\n")
    unknown = serving.run("mode", "off", "--target", "nobody")
    assert (unknown.returncode, "there are: default" in unknown.stderr) == (4, True)


def test_sigterm_drains_and_leaves_in_order(serving: Serving) -> None:
    """An upgrade must not cut what runs: readiness goes false first, the permit in flight may finish, then exit 0."""
    serving.write("server: {drain_s: 10}\n")
    serving.start()
    with serving.channel() as channel:
        acquire(channel, "long")
        serving.signal(signal.SIGTERM)
        serving.wait_for_log("draining")
        during = serving.get("/readyz")
        assert serving.process is not None
        alive = serving.process.poll() is None
        release(channel, "long")
        code = serving.process.wait(5)

    assert during == (503, "draining\n")
    assert alive
    assert code == 0
    assert not list((serving.folder / "run").rglob("*.sock"))


def test_a_second_sigterm_does_not_wait(serving: Serving) -> None:
    """Whoever asks twice means it; the state is saved all the same."""
    serving.start()
    with serving.channel() as channel:
        acquire(channel, "stuck")
        serving.signal(signal.SIGTERM)
        serving.wait_for_log("draining")
        code = serving.terminate(within_s=8)

    assert code == 0
    assert (serving.state / "limits.json").exists()


def test_learned_values_outlive_a_restart(serving: Serving) -> None:
    """What was learned in an hour must not be learned again after an upgrade."""
    serving.start()
    with serving.channel() as channel:
        for number in range(3):
            acquire(channel, f"r{number}", model="m")
            release(channel, f"r{number}")
    assert serving.terminate() == 0
    saved = json.loads((serving.state / "limits.json").read_text())
    serving.start()

    assert saved["targets"]["default"]["outputs"]["m"][0] == [20, 20, 20]
    assert serving.terminate() == 0
    again = json.loads((serving.state / "limits.json").read_text())
    assert again["targets"]["default"]["outputs"] == saved["targets"]["default"]["outputs"]


def test_a_journal_of_real_traffic_replays_to_the_same_decisions(serving: Serving) -> None:
    """A bad night must become a test, from the files that are there in the morning."""
    serving.start()
    with serving.channel() as channel:
        for number in range(5):
            acquire(channel, f"r{number}", model="m")
            release(channel, f"r{number}")
    serving.run("mode", "enforce")
    serving.terminate()
    result = serving.run("replay", str(serving.state / "journal"))

    assert "same decisions" in result.stdout, result.stdout
    assert result.returncode == 0
    inputs = int(result.stdout.split(" inputs")[0].split()[-1].replace(",", ""))
    assert inputs > 10


def test_roles_of_the_token_file_hold_for_the_commands(serving: Serving) -> None:
    """Whoever may look may not switch off; whoever shows nothing may not even look."""
    (serving.folder / "tokens").write_text("viewer eye\noperator hand\nclient caller\n")
    serving.config.write_text(
        serving.config.read_text().replace(
            "listen: {", f"listen: {{roles: {{token_file: {serving.folder}/tokens}}, "
        )
    )
    serving.start()

    def code(token: str, *arguments: str) -> int:
        serving.environ["TIDEGATE_CONTROL_TOKEN"] = token
        return serving.run(*arguments).returncode

    assert [code(token, "status") for token in ("", "wrong", "caller", "eye", "hand")] == [4, 4, 4, 0, 0]
    assert [code(token, "mode", "off") for token in ("caller", "eye", "hand")] == [4, 4, 0]


def test_an_unwritable_state_directory_is_a_warning(serving: Serving) -> None:
    """A read-only container must serve, and say what it loses."""
    (serving.folder / "file").write_text("")
    serving.write(f"state_dir: {serving.folder}/file/state\n")
    serving.start()

    (warning,) = [line for line in serving.status()["warnings"] if "state_dir" in line]
    assert "memory only" in warning
    assert serving.terminate() == 0


def test_sighup_applies_what_can_change_and_names_what_cannot(serving: Serving) -> None:
    """A reload that silently ignores half of the file is worse than none."""
    serving.start()
    serving.write("targets: [{name: default, mode: enforce, models: [m]}]\n")
    serving.signal(signal.SIGHUP)
    serving.wait_for_log("reloaded")

    assert "applied=targets.default.mode" in serving.log()
    assert "needs_restart=targets.default.models" in serving.log()
    assert serving.status()["targets"][0]["mode"] == "MODE_ENFORCE"


def test_a_bad_reload_keeps_everything(serving: Serving) -> None:
    """A typo at night must not change what runs."""
    serving.write("targets: [{name: default, mode: enforce}]\n")
    serving.start()
    serving.write("targets: [{name: default, mode: of}, {nam: x}]\n")
    result = serving.run("config", "reload", "--control", f"unix:{serving.folder}/run/tidegate/control.sock")

    assert result.returncode == 1
    assert "targets[0].mode" in result.stderr
    assert "targets[1].nam" in result.stderr
    assert "reload_refused" in serving.log()
    serving.write("")
    assert serving.status()["targets"][0]["mode"] == "MODE_ENFORCE"


def test_an_operators_switch_survives_a_reload_about_something_else(serving: Serving) -> None:
    """At night someone turned it off by hand: a reload of an SLO must not turn it on again."""
    serving.write("targets: [{name: default, mode: enforce}]\n")
    serving.start()
    serving.run("mode", "off")
    serving.write("targets: [{name: default, mode: enforce, slo: {interactive: {ttft_s: 9}}}]\n")
    result = serving.run("config", "reload", "--json")
    (target,) = serving.status()["targets"]

    assert json.loads(result.stdout)["changed"] == ["targets.default.classes.interactive.slo.ttft_s"]
    assert target["mode"] == "MODE_OFF"
    assert target["classes"][0]["slo_ttft_s"] == 9


@pytest.mark.parametrize("setting", ["grpc", "http"])
def test_a_taken_port_ends_the_start_with_the_setting_to_change(
    serving: Serving, other: Serving, setting: str
) -> None:
    """`Address already in use` without an address is archaeology."""
    other.start()
    setattr(serving, setting, getattr(other, setting))
    serving.write("")
    code = serving.spawn().wait(20)

    assert code == 6
    assert f"listen.{setting}" in serving.log()
    assert getattr(serving, setting) in serving.log()
    assert "Traceback" not in serving.log()


def test_a_second_start_by_mistake_harms_nothing(serving: Serving) -> None:
    """The one that runs must stay reachable by commands, and keep its state directory."""
    serving.start()
    first = serving.process
    code = serving.spawn().wait(20)
    serving.process = first

    assert code == 6
    assert serving.run("status").returncode == 0


def test_metrics_speak_openmetrics_when_asked(serving: Serving) -> None:
    """Exemplars travel in OpenMetrics only; a caller's trace must come out as one."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    serving.start()
    with serving.channel() as channel:
        acquire(channel, "one", traceparent=f"00-{trace}-b7ad6b7169203331-01")
    _, page = serving.get("/metrics", accept="application/openmetrics-text; version=1.0.0")

    assert page.endswith("# EOF\n")
    assert f'# {{trace_id="{trace}"}}' in page


def test_unknown_paths_are_not_found_and_health_is_not_readiness(serving: Serving) -> None:
    """A kubelet that restarts a draining sidecar would cut what it lets finish."""
    serving.start()
    serving.run("drain")

    assert serving.get("/healthz") == (200, "ok\n")
    assert serving.get("/nothing")[0] == 404


def test_status_watch_streams(serving: Serving, tmp_path: Path) -> None:
    """Programs follow the sidecar by lines of JSON."""
    serving.start()
    found: list[str] = []

    def follow() -> None:
        found.append(serving.run("status", "--watch", "--interval", "0.2", "--json").stdout)

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(2.5)
    serving.terminate()
    thread.join(20)

    lines = [json.loads(line) for line in found[0].splitlines()]
    assert len(lines) > 2
    assert lines[0]["targets"][0]["name"] == "default"


def test_exported_spans_reach_an_otlp_receiver(serving: Serving, other: Serving) -> None:
    """The decision must be seen in the caller's trace, by a real receiver: a second sidecar's own OTLP port."""
    port = f"127.0.0.1:{free_port()}"
    other.config.write_text(other.config.read_text().replace('otlp_grpc: ""', f'otlp_grpc: "{port}"'))
    other.start()
    serving.write(f'export: {{otlp_endpoint: "http://{port}"}}\n')
    serving.start()
    with serving.channel() as channel:
        acquire(channel, "one", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        release(channel, "one")
    serving.terminate()
    until = time.monotonic() + 10
    while 'tidegate_telemetry_total{name="spans_received"} 1.0' not in other.get("/metrics")[1]:
        assert time.monotonic() < until, other.get("/metrics")[1]
        time.sleep(0.2)
