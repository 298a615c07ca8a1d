"""`tidegate doctor` against servers that are well, ill, and something else."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from admission.commands.probes import State, metrics_url, reach
from tests.integration.app.serving import Serving, free_port

pytestmark = pytest.mark.integration

PAGE = """
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 1
vllm:kv_cache_usage_perc{engine="0"} 0.25
"""


class Page(BaseHTTPRequestHandler):
    """Answers each path with the text that the test put there."""

    pages: ClassVar[dict[str, str]] = {
        "/metrics": PAGE,
        "/html": "<html>hello</html>",
        "/partial": PAGE.split("\nvllm:kv", maxsplit=1)[0],
    }

    def do_GET(self) -> None:
        body = self.pages.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # whoever is in a hurry leaves before the end
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def engine() -> Iterator[str]:
    """The address of a server with some pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def checks(serving: Serving, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the checks by group and name."""
    result = serving.run("doctor", *arguments, "--json")
    return result.returncode, {f"{each['group']} {each['name']}": each for each in json.loads(result.stdout)}


def test_a_healthy_engine_is_named_with_its_signals(serving: Serving, engine: str) -> None:
    """The first command of a newcomer: what do you see of my engine?"""
    code, found = checks(serving, engine)

    assert code == 0
    assert found["engine kind"]["found"] == "vllm"
    assert found["engine RUNNING"]["found"] == "3"
    assert found["engine KV_USAGE_RATIO"]["found"] == "25 %"
    assert {found[f"reach {name}"]["state"] for name in ("DNS", "TCP", "first byte")} == {"ok"}


def test_the_slo_in_force_is_called_a_default(serving: Serving, engine: str) -> None:
    """What nobody chose must be seen before it decides about traffic."""
    serving.write("targets: [{slo: {batch: {tpot_s: 0.5}}}]\n")
    _, found = checks(serving, engine)

    assert found["slo default interactive"]["advice"].startswith("default, not set by you")
    assert found["slo default batch"] | {"advice": ""} == found["slo default batch"]
    assert "TPOT 0.5 s" in found["slo default batch"]["found"]


@pytest.mark.parametrize(
    ("path", "check", "words"),
    [
        ("/html", "engine page", "the page is HTML"),
        ("/nothing", "engine page", "HTTP 404"),
        ("/partial", "engine KV_USAGE_RATIO", "missing"),
    ],
)
def test_another_page_is_a_problem_with_its_reason(
    serving: Serving, engine: str, path: str, check: str, words: str
) -> None:
    """A wrong URL is the most common mistake of a first installation."""
    code, found = checks(serving, f"http://{engine}{path}")

    assert code == 1
    assert found[check]["state"] == "problem"
    assert words in found[check]["found"]


def test_nobody_there_is_a_problem(serving: Serving) -> None:
    """Without an engine there is nothing to protect."""
    code, found = checks(serving, f"127.0.0.1:{free_port()}")

    assert code == 1
    assert "Connection refused" in found["reach connect"]["found"]


def test_a_taken_port_names_the_setting(serving: Serving, engine: str) -> None:
    """Before the start fails at three in the morning."""
    host, _, port = serving.http.partition(":")
    with socket.create_server((host, int(port))):
        code, found = checks(serving, engine)

    assert code == 1
    assert found["ports listen.http"]["advice"] == "set listen.http to another address"
    assert found["ports listen.grpc"]["state"] == "ok"


def test_each_engine_of_the_configuration_is_checked_by_name(serving: Serving, engine: str) -> None:
    """With ten engines the one that is ill must be found."""
    gone = f"127.0.0.1:{free_port()}"
    serving.write(f"targets: [{{metrics_urls: ['http://{engine}/metrics', 'http://{gone}/metrics']}}]\n")
    code, found = checks(serving)

    assert code == 1
    assert found[f"engine {engine} kind"]["found"] == "vllm"
    assert found[f"reach {gone} connect"]["state"] == "problem"


def test_a_file_that_cannot_be_read_is_a_problem(serving: Serving, engine: str) -> None:
    """Before the start fails for it."""
    environ = serving.environ
    environ["TIDEGATE_LISTEN__ROLES__TOKEN_FILE"] = f"{serving.folder}/none"
    code, found = checks(serving, engine)

    assert code == 1
    assert found["files listen.roles.token_file"]["advice"] == "cannot be read"


def test_the_ports_of_the_running_sidecar_are_its_own(serving: Serving, engine: str) -> None:
    """The doctor is asked most when something runs already; then it also tells what that one sees."""
    serving.start()
    code, found = checks(serving, engine)

    assert code == 0
    assert "in use by the running sidecar" in found["ports listen.grpc"]["found"]
    assert any(name.startswith("signals ") for name in found)


def test_the_table_is_for_people(serving: Serving, engine: str) -> None:
    """And fits a terminal's width."""
    result = serving.run("doctor", engine)

    assert result.returncode == 0
    assert "vllm" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_a_slow_step_is_noted_against_its_mark(engine: str) -> None:
    """A second of DNS on every scrape is found here or nowhere. The clock is the test's."""
    ticks = iter(range(100))
    found = {
        check.name: check for check in reach(f"http://{engine}/metrics", clock=lambda: float(next(ticks)))
    }

    assert {check.state for check in found.values()} == {State.NOTE, State.OK}
    assert found["DNS"].advice == "over the mark of 50 ms"
    assert found["first byte"].state is State.OK


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
        ("https://engine/", "https://engine/metrics"),
        ("http://engine:1/v1/stats", "http://engine:1/v1/stats"),
        ("http://[::1]:8000", "http://[::1]:8000/metrics"),
    ],
)
def test_an_address_is_enough(url: str, expected: str) -> None:
    """People type what they remember."""
    assert metrics_url(url) == expected


@pytest.mark.parametrize("url", ["ftp://x/metrics", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    """With a line about what is expected."""
    with pytest.raises(ValueError, match="expected http"):
        metrics_url(url)
