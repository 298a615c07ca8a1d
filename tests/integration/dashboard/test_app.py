"""The page itself, run by Streamlit's AppTest over a real MonitorService on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.fake import FakeMonitor, serve
from dashboard.scenes import SCENES

APP = Path(__file__).parents[3] / "dashboard" / "app.py"
pytestmark = pytest.mark.integration


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMonitor]:
    """A sidecar that plays what it is told; the app looks at it."""
    playing = FakeMonitor(SCENES["healthy"], time.time)
    server, address = serve(playing, "127.0.0.1:0")
    monkeypatch.setenv("TIDEGATE_CONTROL_ADDRESS", address)
    st.cache_resource.clear()
    yield playing
    st.cache_resource.clear()
    server.stop(0).wait()


def _shown(app: AppTest) -> str:
    assert not app.exception, [error.value for error in app.exception]
    return "".join(element.proto.body for element in app.get("html"))


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_every_state_is_drawn_without_an_exception(fake: FakeMonitor, scene: str) -> None:
    """A page that raises is dark when it is needed."""
    fake.play(SCENES[scene])

    shown = _shown(AppTest.from_file(str(APP), default_timeout=20).run())

    assert "tg-verdict" in shown
    assert shown.count('class="tg tg-card"') == 8


def test_rates_are_live_after_a_second_look(fake: FakeMonitor) -> None:
    """Totals become rates once two snapshots are there."""
    fake.play(SCENES["overload"])
    app = AppTest.from_file(str(APP), default_timeout=20).run()
    time.sleep(1.2)

    shown = _shown(app.run())

    assert "Refusing batch" in shown
    assert "TTFT forecast" in shown
    assert "expected first token in 2.6 s over SLO 2.3 s" in shown


def test_shadow_says_what_enforcing_would_do(fake: FakeMonitor) -> None:
    """The reason to look at shadow at all."""
    fake.play(SCENES["shadow"])
    app = AppTest.from_file(str(APP), default_timeout=20).run()
    time.sleep(1.2)

    shown = _shown(app.run())

    assert "SHADOW" in shown
    assert "Shadow: nobody is refused. Enforcing would refuse batch" in shown
    assert "Enforcing would refuse, last 10 s" in shown


def test_a_target_is_picked_and_kept_in_the_address(fake: FakeMonitor) -> None:
    """A link in a chat shows what its sender saw."""
    fake.play(SCENES["two_targets"])
    app = AppTest.from_file(str(APP), default_timeout=20)
    app.query_params["target"] = "qwen-7b"

    app.run()

    assert "<b>qwen-7b</b>" in _shown(app)
    assert app.query_params["target"] in ("qwen-7b", ["qwen-7b"])


def test_an_unknown_target_in_the_address_shows_one_that_is_there(fake: FakeMonitor) -> None:
    """Targets are renamed, links stay."""
    fake.play(SCENES["two_targets"])
    app = AppTest.from_file(str(APP), default_timeout=20)
    app.query_params["target"] = "<img src=x>"

    assert "<b>llama-70b</b>" in _shown(app.run())


def test_a_sidecar_that_was_never_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first thing a newcomer sees may be this."""
    monkeypatch.setenv("TIDEGATE_CONTROL_ADDRESS", f"unix:{tmp_path}/nobody.sock")
    st.cache_resource.clear()

    shown = _shown(AppTest.from_file(str(APP), default_timeout=20).run())
    st.cache_resource.clear()

    assert "No sidecar to look at" in shown
    assert "nobody.sock" in shown


def test_a_unix_socket_is_an_address_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The control listener is one by default."""
    server, address = serve(FakeMonitor(SCENES["healthy"], time.time), f"unix:{tmp_path}/c.sock")
    monkeypatch.setenv("TIDEGATE_CONTROL_ADDRESS", address)
    st.cache_resource.clear()

    shown = _shown(AppTest.from_file(str(APP), default_timeout=20).run())
    st.cache_resource.clear()
    server.stop(0).wait()

    assert "Healthy" in shown


def test_a_sidecar_without_these_methods_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gRPC service may answer at that port."""
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("TIDEGATE_CONTROL_ADDRESS", f"127.0.0.1:{port}")
    st.cache_resource.clear()

    shown = _shown(AppTest.from_file(str(APP), default_timeout=20).run())
    st.cache_resource.clear()
    server.stop(0).wait()

    assert "older than this dashboard" in shown
