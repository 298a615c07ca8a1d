"""The checks of `tidegate doctor`: each gives what was found, what was expected and what to change."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from admission.commands.wording import amount, duration, ratio, size

if TYPE_CHECKING:
    from admission.config.schema import Settings
    from admission.v1.monitor_service_pb2 import Snapshot
    from telemetry.receivers.exposition import Page

DNS_MARK_S = 0.05
TCP_MARK_S = 0.05
TLS_MARK_S = 0.2
FIRST_BYTE_MARK_S = 1.0
"""Past these the engine is far away or overloaded, and each scrape arrives old. The last one is a scrape interval."""
TIMEOUT_S = 5.0


class State(StrEnum):
    """How a check ended. Only `problem` makes the exit code 1."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's table."""

    group: str
    name: str
    state: State
    found: str
    advice: str = ""


def metrics_url(url: str) -> str:
    """The page to read: /metrics where the URL names no path. ValueError: not an http(s) URL."""
    text = url if "://" in url else f"http://{url}"
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"expected http://host:port, not {url!r}")
    return text if parts.path.strip("/") else f"{text.rstrip('/')}/metrics"


def reach(url: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[Check]:
    """DNS, TCP, TLS and first byte, each against its mark; ends at the first that fails."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    started = clock()
    try:
        host = str(socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)[0][4][0])
        yield _timed("DNS", clock() - started, DNS_MARK_S)
        started = clock()
        connection = socket.create_connection((host, port), TIMEOUT_S)
    except OSError as error:
        yield Check(
            "reach", "connect", State.PROBLEM, f"{url}: {error.strerror or error}", "is the engine running?"
        )
        return
    with connection:
        yield _timed("TCP", clock() - started, TCP_MARK_S)
        yield from _talk(connection, parts, clock)


def _talk(connection: socket.socket, parts: SplitResult, clock: Callable[[], float]) -> Iterator[Check]:
    try:
        if parts.scheme == "https":
            started = clock()
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=parts.hostname)
            yield _timed("TLS", clock() - started, TLS_MARK_S)
        started = clock()
        head = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        if not connection.recv(1):
            raise ConnectionError("closed without an answer")
        yield _timed("first byte", clock() - started, FIRST_BYTE_MARK_S)
    except OSError as error:
        yield Check("reach", "answer", State.PROBLEM, str(error) or type(error).__name__)
    finally:
        connection.close()


def _timed(name: str, took_s: float, mark_s: float) -> Check:
    late = took_s > mark_s
    advice = f"over the mark of {duration(mark_s)}" if late else ""
    return Check("reach", name, State.NOTE if late else State.OK, duration(took_s), advice)


def engine(url: str) -> Iterator[Check]:
    """Which engine answers, by the names on its page, and which of its signals are there."""
    from telemetry.receivers.exposition import read_page
    from telemetry.receivers.fetch import FetchError, FetchLimits, fetch
    from telemetry.receivers.scrape import EXPECTED

    try:
        page = read_page(asyncio.run(fetch(url, FetchLimits())))
    except FetchError as error:
        yield Check(
            "engine", "page", State.PROBLEM, str(error), f"{url} must answer with the engine's metrics"
        )
        return
    if page.problem:
        yield Check("engine", "page", State.PROBLEM, page.problem, "give the URL of the engine's /metrics")
        return
    yield Check("engine", "kind", State.OK, str(page.engine))
    yield from _signals(page)
    for kind in EXPECTED:
        if kind not in page.values:
            yield Check(
                "engine", kind.name, State.PROBLEM, "missing", "the law sees less; is this an old version?"
            )


def _signals(page: Page) -> Iterator[Check]:
    for kind, value in page.values.items():
        text = ratio(value) if kind.name.endswith("_RATIO") else amount(value)
        yield Check("engine", kind.name, State.OK, text)
    if page.invalid:
        yield Check("engine", "values", State.NOTE, f"{page.invalid} are impossible", "they are left out")


def gpus() -> Iterator[Check]:
    """What NVML on this machine says."""
    from telemetry.agent import once

    _, found = once(write=lambda _: None)
    if not found["gpus"]:
        advice = "VRAM is not watched from here: run `tidegate agent` on the GPU's node"
        yield Check("gpus", "NVML", State.NOTE, found["problem"] or "no GPU", advice)
    for gpu in found["gpus"]:
        missing = ", ".join(gpu["unsupported"])
        free = (
            "memory unknown" if gpu["memory_free_bytes"] is None else f"{size(gpu['memory_free_bytes'])} free"
        )
        state = State.PROBLEM if gpu["state"] == "lost" else State.OK
        yield Check(
            "gpus",
            gpu["uuid"],
            state,
            f"{gpu['name']}, {free}",
            f"cannot report {missing}" if missing else "",
        )


def signals(snapshot: Snapshot) -> Iterator[Check]:
    """What a running sidecar sees of its targets."""
    for signal in snapshot.signals:
        fresh = signal.state == "fresh" and not signal.warning
        name = f"{signal.target} {signal.name}".strip()
        found = f"{signal.state} from {signal.source}"
        yield Check("signals", name, State.OK if fresh else State.NOTE, found, signal.warning)


def slos(settings: Settings) -> Iterator[Check]:
    """The SLO in force of each class, and whether anybody chose it."""
    for target in settings.targets:
        for rank, entry in target.controller.classes.items():
            slo = entry.slo
            ttft = (
                "none"
                if slo.ttft_s is None
                else f"{slo.ttft_s:g} s + {slo.ttft_per_1k_s:g} s per 1k prompt tokens"
            )
            default = rank not in target.own_slo
            yield Check(
                "slo",
                f"{target.name} {rank.label}",
                State.NOTE if default else State.OK,
                f"TTFT {ttft}, TPOT {slo.tpot_s:g} s",
                "default, not set by you: targets[].slo" if default else "",
            )


def modes(settings: Settings) -> Iterator[Check]:
    """What each target does with its decisions."""
    for target in settings.targets:
        mode = target.controller.mode.name.lower()
        advice = "refuses nothing until targets[].mode says enforce" if mode == "shadow" else ""
        yield Check("mode", target.name, State.OK if mode == "enforce" else State.NOTE, mode, advice)


def ports(settings: Settings, *, ours: bool) -> Iterator[Check]:
    """Whether each address can be listened on. `ours`: a sidecar runs with this configuration already."""
    listen, telemetry = settings.listen, settings.telemetry
    wanted = [("listen.grpc", address) for address in listen.grpc]
    wanted += [("listen.http", listen.http), ("telemetry.otlp_grpc", telemetry.otlp_grpc)]
    wanted += [("telemetry.otlp_http", telemetry.otlp_http)]
    for setting, address in wanted:
        if address and not address.startswith("unix:"):
            yield _port(setting, address, ours=ours)


def _port(setting: str, address: str, *, ours: bool) -> Check:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and ours:
                return Check("ports", setting, State.OK, f"{address} in use by the running sidecar")
            found = f"{address}: {(error.strerror or str(error)).lower()}"
            return Check("ports", setting, State.PROBLEM, found, f"set {setting} to another address")
    return Check("ports", setting, State.OK, f"{address} free")


def files(settings: Settings) -> Iterator[Check]:
    """Whether each file that the configuration names can be read."""
    listen, telemetry = settings.listen, settings.telemetry
    named = [("listen.roles.token_file", listen.roles.token_file)]
    for section, tls in (("listen", listen.tls), ("telemetry", telemetry.tls)):
        named += [(f"{section}.tls.{part}", getattr(tls, part)) for part in ("cert", "key", "client_ca")]
    for setting, name in named:
        if name:
            readable = Path(name).is_file() and os.access(name, os.R_OK)
            state = State.OK if readable else State.PROBLEM
            yield Check("files", setting, state, name, "" if readable else "cannot be read")


def state_dir(directory: Path | None) -> Check:
    """Whether limits and learned values will outlive a restart."""
    if directory is None:
        return Check(
            "state", "state_dir", State.NOTE, "memory only", "limits are learned again after a restart"
        )
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if os.access(existing, os.W_OK | os.X_OK) and existing.is_dir():
        return Check("state", "state_dir", State.OK, str(directory))
    return Check(
        "state", "state_dir", State.NOTE, f"{directory} is not writable", "memory only: set state_dir"
    )
