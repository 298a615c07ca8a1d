"""The page over a real sidecar: both agree on names and numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from admission.v1 import admission_service_pb2 as admission
from admission.v1 import admission_service_pb2_grpc as admission_grpc
from admission.v1 import types_pb2 as types
from dashboard.source import GrpcMonitor, Source
from tests.integration.app.serving import Serving

APP = Path(__file__).parents[3] / "dashboard" / "app.py"
pytestmark = pytest.mark.integration
TARGET = "targets: [{name: llama, mode: MODE, metrics_urls: []}]\n"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A sidecar of its own."""
    made = Serving(tmp_path)
    yield made
    made.kill()


def _start(serving: Serving, mode: str) -> str:
    """Start it; its control address."""
    serving.write(TARGET.replace("MODE", mode))
    text = serving.config.read_text()
    serving.config.write_text(
        text.replace("listen: {", f'listen: {{control: "unix:{serving.folder}/c.sock", ')
    )
    serving.start()
    return f"unix:{serving.folder}/c.sock"


def _serve_some(serving: Serving, number: int) -> None:
    """Requests that are admitted, answered and given back."""
    with serving.channel() as channel:
        stub = admission_grpc.AdmissionServiceStub(channel)
        for count in range(number):
            ticket = types.Ticket(
                request_id=f"r{time.monotonic_ns()}-{count}", model="m", prompt_tokens=100, max_tokens=20
            )
            decision = stub.Acquire(admission.AcquireRequest(ticket=ticket), timeout=5).decision
            assert decision.verdict == types.VERDICT_ADMITTED
            finish = types.Finish(outcome=types.OUTCOME_OK, prompt_tokens=100, output_tokens=10)
            finish.ttft.FromMilliseconds(40)
            finish.decode.FromMilliseconds(200)
            stub.Release(admission.ReleaseRequest(lease=decision.lease, finish=finish), timeout=5)


def test_history_has_every_series_that_the_page_draws(serving: Serving) -> None:
    """A name that only one side knows is an empty chart."""
    address = _start(serving, "enforce")
    source = Source(GrpcMonitor(address), address, time.monotonic)
    drawn = {"limit_tokens", "used_tokens", "in_flight", "queued:interactive", "queued:batch"}
    drawn |= {"admitted_per_s", "refused_per_s", "shadow_refused_per_s"}
    drawn |= {
        f"{name}_{rank}_s:interactive" for name in ("ttft", "tpot", "e2e") for rank in ("p50", "p95", "p99")
    }
    deadline = time.monotonic() + 15
    seen: set[str] = set()

    while not drawn <= seen and time.monotonic() < deadline:
        _serve_some(serving, 5)
        time.sleep(1.0)
        seen = set(source.history("llama").lines)

    assert drawn - seen == set()
    assert source.history("llama").line("limit_tokens").value[-1] > 0


@pytest.mark.parametrize(("mode", "shown"), [("enforce", "ENFORCE"), ("shadow", "SHADOW")])
def test_the_page_shows_a_real_sidecar(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, mode: str, shown: str
) -> None:
    """The fake and the real thing are drawn by the same code."""
    monkeypatch.setenv("TIDEGATE_CONTROL_ADDRESS", _start(serving, mode))
    st.cache_resource.clear()
    app = AppTest.from_file(str(APP), default_timeout=20).run()
    _serve_some(serving, 20)
    time.sleep(2.2)

    app.run()
    st.cache_resource.clear()
    html = "".join(element.proto.body for element in app.get("html"))

    assert not app.exception
    assert shown in html
    assert "<b>llama</b>" in html
    assert "default, not set by you" in html
    assert "nobody refused" in html
    assert "40 ms" in html
