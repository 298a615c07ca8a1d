"""What the protocol costs: our server beside a bare echo of the same messages, unary and session, in one run.

Run `python benchmarks/protocol.py [--seconds 4] [--json]`. Servers and the load generator are processes of
their own. Machines differ: only the ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import grpc

from admission.v1 import admission_service_pb2, admission_service_pb2_grpc, types_pb2

# Stubs know the enums' own types only, and not which calls are of asyncio.
wire: Any = admission_service_pb2
words: Any = types_pb2
AdmissionServiceStub: Any = admission_service_pb2_grpc.AdmissionServiceStub

CONCURRENT = (1, 16, 64)
FLOORS = {"unary_over_echo": 0.85, "session_over_echo": 0.45, "session_over_unary": 10.0}
ADMITTED, QUEUED = 1, 2


def ticket(no: int, request_id: str = "") -> Any:
    """A small chat request."""
    return words.Ticket(
        no=no,
        request_id=request_id,
        model="llama-3.1-8b",
        endpoint="/v1/chat/completions",
        stream=True,
        prompt_tokens=40,
        max_tokens=16,
    )


# ---- servers


class Echo:
    """Answers with the messages that the real server would send, and does nothing else."""

    async def Acquire(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """An admission."""
        decision = words.Decision(no=request.ticket.no, verdict=ADMITTED, target="default", lease=b"x" * 16)
        decision.lease_ttl.seconds = 30
        return wire.AcquireResponse(decision=decision)

    async def Release(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Known."""
        return wire.ReleaseResponse(known=True)

    async def Report(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """Nothing is lost."""
        return wire.ReportResponse()

    async def Session(self, _requests: Any, context: Any) -> None:  # noqa: N802
        """One decision per acquire, as they come."""
        seq = 0
        while (message := await context.read()) is not grpc.aio.EOF:
            if not message.acquires:
                continue
            seq += 1
            response = wire.SessionResponse(seq=seq)
            for each in message.acquires:
                response.decisions.add(no=each.no, verdict=ADMITTED, target="default")
            await context.write(response)


async def serve_echo() -> None:
    """Listen, print the address, run until killed."""
    server = grpc.aio.server()
    admission_service_pb2_grpc.add_AdmissionServiceServicer_to_server(Echo(), server)  # type: ignore[arg-type]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await _terminated()
    await server.stop(0)


async def serve_real(*, roomy: bool = False) -> None:
    """The sidecar's server with controller and journal; prints its counters at the end.

    `roomy`: everything is admitted, and permits that nobody gives back end after a second.
    """
    from admission.core.controller import ControllerConfig
    from admission.core.leases import LeaseConfig
    from admission.core.limits.fixed import FixedConfig
    from admission.core.prefill import PrefillConfig
    from admission.core.settings import default_classes
    from admission.core.slo import SloConfig
    from admission.runtime.collector import calm_collector
    from admission.runtime.host import Host, TargetSpec
    from admission.runtime.journal import Journal
    from admission.runtime.settings import JournalConfig, ListenerConfig, ServerConfig
    from admission.server.service import TidegateServer
    from admission.vocabulary import Mode

    with tempfile.TemporaryDirectory() as folder:
        core = ControllerConfig(mode=Mode.ENFORCE)
        if roomy:
            # Nobody tells a first token here: with a TTFT to keep, the prefill budget would fill and answers be held back.
            patient = SloConfig(ttft_s=600.0)
            core = ControllerConfig(
                mode=Mode.ENFORCE,
                classes={rank: replace(each, slo=patient) for rank, each in default_classes().items()},
                limit=FixedConfig(limit_tokens=10**12),
                prefill=PrefillConfig(initial_rate=1e9),
                lease=LeaseConfig(ttl_s=1.0, grace_s=0.5),
            )
        host = Host([TargetSpec(config=core)])
        journal = Journal(
            Path(folder) / "journal", JournalConfig(), lambda text: print(text, file=sys.stderr)
        )
        host.start()
        journal.start(host.controllers)
        host.record_to(journal)
        config = ServerConfig(listeners=(ListenerConfig(address="127.0.0.1:0"),))
        server = TidegateServer(host, config, runtime_dir=Path(folder))
        await server.start()
        calm_collector()
        print(server.addresses[0], flush=True)
        await _terminated()
        facts = {
            "in_flight": host.view("default").in_flight,
            "journal_dropped": journal.dropped_inputs,
            "journal_recorded": journal.recorded_inputs,
            **server.sessions.counters,
        }
        await server.stop()
        journal.close()
        print(json.dumps(facts), file=sys.stderr)


async def _terminated() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    await done.wait()


# ---- load


@dataclass
class Load:
    """What a generator saw. Milliseconds."""

    pairs_per_s: float
    p50_ms: float
    p99_ms: float
    refused: int = 0


def _load(pairs: int, took_s: float, waits: list[float], refused: int) -> Load:
    cuts = statistics.quantiles(waits, n=100) if len(waits) > 1 else [0.0] * 99
    return Load(round(pairs / took_s, 1), round(cuts[49] * 1e3, 2), round(cuts[98] * 1e3, 2), refused)


async def load_unary(address: str, concurrent: int, seconds_s: float) -> Load:
    """Closed loop of Acquire and Release."""
    waits: list[float] = []
    refused = 0
    async with grpc.aio.insecure_channel(address) as channel:
        stub = AdmissionServiceStub(channel)
        until = time.perf_counter() + seconds_s

        async def caller(number: int) -> int:
            nonlocal refused
            pairs = 0
            while (began := time.perf_counter()) < until:
                asked = wire.AcquireRequest(ticket=ticket(0, f"{number}-{pairs}-{refused}"))
                try:
                    answer = await stub.Acquire(asked)
                    waits.append(time.perf_counter() - began)
                    if answer.decision.verdict == ADMITTED:
                        lease = answer.decision.lease
                        await stub.Release(wire.ReleaseRequest(lease=lease, finish=words.Finish(outcome=1)))
                        pairs += 1
                    else:
                        refused += 1
                except grpc.aio.AioRpcError:
                    # Cut off inside gRPC: too much waits there.
                    refused += 1
                    await asyncio.sleep(0.01)
            return pairs

        began = time.perf_counter()
        pairs = sum(await asyncio.gather(*(caller(number) for number in range(concurrent))))
        return _load(pairs, time.perf_counter() - began, waits, refused)


class SessionLoad:
    """Callers that await their decisions on one stream; writes coalesce while one is under way."""

    def __init__(self) -> None:
        self.next_no = 0
        self.waiting: dict[int, asyncio.Future[int]] = {}
        self.message = wire.SessionRequest()
        self.seen = 0
        self.held = 0
        self.wake = asyncio.Event()

    def received(self, response: Any) -> None:
        """Take decisions in."""
        self.seen = response.seq
        for decision in response.decisions:
            if decision.verdict != QUEUED and (future := self.waiting.pop(decision.no, None)) is not None:
                future.set_result(decision.verdict)

    def acquire(self) -> tuple[int, asyncio.Future[int]]:
        """Ask for one permit."""
        self.next_no += 1
        self.message.acquires.append(ticket(self.next_no))
        future = self.waiting[self.next_no] = asyncio.get_running_loop().create_future()
        self.wake.set()
        return self.next_no, future

    def finish(self, no: int) -> None:
        """Give it back."""
        self.message.finishes.add(no=no, outcome=1, output_tokens=16)
        self.held -= 1
        self.wake.set()

    def take(self) -> Any:
        """Everything that gathered."""
        message, self.message = self.message, wire.SessionRequest()
        message.seen, message.held_count = self.seen, self.held
        return message


async def load_session(address: str, concurrent: int, seconds_s: float) -> Load:
    """Closed loop of acquire and finish on one session."""
    load, waits, refused = SessionLoad(), [], 0
    until = time.perf_counter() + seconds_s

    async def caller() -> int:
        nonlocal refused
        pairs = 0
        while (began := time.perf_counter()) < until:
            no, decided = load.acquire()
            verdict = await decided
            waits.append(time.perf_counter() - began)
            pairs += 1
            if verdict == ADMITTED:
                load.held += 1
                load.finish(no)
            else:
                refused += 1
        return pairs

    async with grpc.aio.insecure_channel(address) as channel:
        stream = AdmissionServiceStub(channel).Session()
        await stream.write(wire.SessionRequest(hello=wire.Hello(session=os.urandom(16), attach=1)))

        async def read() -> None:
            while (response := await stream.read()) is not grpc.aio.EOF:
                load.received(response)

        async def write() -> None:
            while await load.wake.wait():
                load.wake.clear()
                await stream.write(load.take())

        halves = [asyncio.create_task(read()), asyncio.create_task(write())]
        began = time.perf_counter()
        pairs = sum(await asyncio.gather(*(caller() for _ in range(concurrent))))
        took_s = time.perf_counter() - began
        for half in halves:
            half.cancel()
        stream.cancel()
    return _load(pairs, took_s, waits, refused)


# ---- the run


@contextmanager
def serving(server: str) -> Iterator[str]:
    """A fresh server of that kind in a process of its own; its address."""
    child = subprocess.Popen([sys.executable, __file__, f"serve-{server}"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None  # noqa: S101 - a pipe was asked for
        yield child.stdout.readline().strip()
    finally:
        child.terminate()
        child.wait()


def measure(server: str, kind: str, concurrent: int, seconds_s: float) -> Load:
    """One load on a fresh server of that kind."""
    with serving(server) as address:
        command = [sys.executable, __file__, f"load-{kind}", address, str(concurrent), str(seconds_s)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Load(**json.loads(done.stdout))


def run(seconds_s: float, repeats: int = 3) -> dict[str, Any]:
    """Every combination, and the ratios at 64 concurrent: medians of runs that alternate, since machines drift."""
    rows: dict[str, Load] = {}
    ratios: dict[str, list[float]] = {name: [] for name in FLOORS}
    for repeat in range(repeats):
        for concurrent in CONCURRENT if repeat == 0 else CONCURRENT[-1:]:
            for kind, server in product(("unary", "session"), ("echo", "real")):
                rows[f"{kind} {server} {concurrent}"] = measure(server, kind, concurrent, seconds_s)
        rate = {name: row.pairs_per_s for name, row in rows.items()}
        ratios["unary_over_echo"].append(rate["unary real 64"] / rate["unary echo 64"])
        ratios["session_over_echo"].append(rate["session real 64"] / rate["session echo 64"])
        ratios["session_over_unary"].append(rate["session real 64"] / rate["unary real 64"])
    return {
        "rows": {name: vars(row) for name, row in rows.items()},
        "ratios": {name: statistics.median(values) for name, values in ratios.items()},
    }


def main() -> int:
    """Print a table (or JSON); 1 when a ratio is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    result = run(asked.seconds)
    if asked.json:
        print(json.dumps(result, indent=1))
    else:
        for name, row in result["rows"].items():
            print(
                f"{name:18} {row['pairs_per_s']:>9,.0f} pairs/s   Acquire p50 {row['p50_ms']:.1f} p99 {row['p99_ms']:.1f} ms"
                f"   refused {row['refused']}"
            )
        for name, value in result["ratios"].items():
            print(f"{name:20} {value:6.2f}   floor {FLOORS[name]}")
    return int(any(value < FLOORS[name] for name, value in result["ratios"].items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve-echo"]:
        asyncio.run(serve_echo())
    elif sys.argv[1:2] in (["serve-real"], ["serve-roomy"]):
        asyncio.run(serve_real(roomy=sys.argv[1] == "serve-roomy"))
    elif sys.argv[1:2] in (["load-unary"], ["load-session"]):
        generate = load_unary if sys.argv[1] == "load-unary" else load_session
        print(json.dumps(vars(asyncio.run(generate(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))))
    else:
        sys.exit(main())
