"""A MonitorService that plays a scene on loopback: `python -m dashboard.fake overload` and a dashboard beside it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from admission.v1 import monitor_service_pb2 as monitor
from admission.v1 import monitor_service_pb2_grpc as monitor_grpc
from admission.v1 import types_pb2 as types
from dashboard.scenes import GIB, SCENES, Load, Scene

_SPAN_S = 600.0
_UUIDS = ("GPU-4f0aa1d2-11", "GPU-9e21c0de-07")
_CLASSES = ("interactive", "batch", "internal")
_SIGNALS = (
    ("permits", "own", 0.2, 41.0),
    ("kv_usage_ratio", "scrape", 1.0, 0.61),
    ("waiting", "scrape", 1.0, 0.0),
    ("requests", "spans", 0.4, 12.1),
    ("vram_free_bytes", "nvml", 0.2, 6.2 * GIB),
)


class Player:
    """What a sidecar would say at a moment of a scene. `began` is the scene's zero in unix seconds."""

    def __init__(self, scene: Scene, began: float) -> None:
        self.scene = scene
        self.began = began
        self._totals: list[dict[tuple[str, str], float]] = [{}]

    def snapshot(self, unix_s: float) -> monitor.Snapshot:
        """The snapshot at a moment."""
        at = unix_s - self.began
        load = self.scene.load(at)
        snapshot = monitor.Snapshot(version="0.1.0", boot=b"scripted", sessions=3)
        snapshot.at.FromNanoseconds(int(unix_s * 1e9))
        snapshot.uptime.FromSeconds(int(at) + 86_400)
        for name in self.scene.targets:
            snapshot.targets.append(self._target(name, load, at))
            snapshot.gpus.extend(_gpu(name, uuid, load) for uuid in _UUIDS)
            snapshot.signals.extend(_signal(name, *row) for row in _SIGNALS)
        self.scene.touch(snapshot, at)
        for target in snapshot.targets:
            for change in target.changes:
                change.at.FromNanoseconds(int((change.at.ToNanoseconds() / 1e9 + self.began) * 1e9))
        return snapshot

    def _target(self, name: str, load: Load, at: float) -> monitor.TargetSnapshot:
        target = monitor.TargetSnapshot(
            name=name,
            mode=self.scene.mode,
            limit_algorithm="aimd",
            limit_tokens=int(load.limit),
            used_tokens=int(load.used),
            in_flight=load.in_flight,
            queued=sum(load.queued.values()),
            prefill_budget_tokens=12_000,
            pending_prompt_tokens=min(11_900, load.in_flight * 90),
            prefill_rate=9_100,
            kv_usage_ratio=load.kv,
            kv_capacity_tokens=98_304 if load.kv is not None else None,
            engine_running=load.in_flight,
            engine_waiting=0,
            sight="full",
            engine_state="up",
            kv_hot_on=0.9,
            kv_hot_off=0.86,
            kv_critical=0.97,
            tokens_per_chunk=1.0,
        )
        target.classes.extend(self._class(cls, load, at) for cls in _CLASSES)
        target.gates.append(monitor.GateSnapshot(name="kv", state="open", threshold=0.97, measured=load.kv))
        target.gates.append(monitor.GateSnapshot(name="vram", state="open", threshold=0.5))
        return target

    def _class(self, name: str, load: Load, at: float) -> monitor.ClassSnapshot:
        share = {"interactive": 0.8, "batch": 0.2}.get(name, 0.0)
        cls = monitor.ClassSnapshot(
            name=name,
            in_flight=int(load.in_flight * share),
            queued=load.queued.get(name, 0),
            slo_is_default=True,
        )
        cls.slo_tpot_s = 0.08 if name == "interactive" else 0.2
        if name == "interactive":
            cls.slo_ttft_s, cls.slo_ttft_per_1k_s = 2.0, 0.25
        if share and load.ttft_s is not None and load.tpot_s is not None:
            slow = 1.0 if name == "interactive" else 6.0
            cls.ttft.CopyFrom(_percentiles(load.ttft_s * slow))
            cls.tpot.CopyFrom(_percentiles(load.tpot_s))
            cls.e2e.CopyFrom(_percentiles(load.ttft_s * slow + 190 * load.tpot_s))
        self._count(cls, load, at)
        return cls

    def _count(self, cls: monitor.ClassSnapshot, load: Load, at: float) -> None:
        """Totals whose difference over the last seconds is the load's rates."""
        totals = self._until(at)
        admitted = int(totals.get((cls.name, ""), 0.0))
        cls.finished = cls.judged = admitted
        cls.good = int(admitted * load.good_share)
        _add(cls, types.VERDICT_ADMITTED, "UNSPECIFIED", admitted)
        for name, reason in load.refused:
            if name != cls.name:
                continue
            verdict = types.VERDICT_SHED if reason == "DEADLINE" else types.VERDICT_REJECTED
            _add(cls, verdict, reason, int(totals[name, reason]), shadow=self.scene.mode == types.MODE_SHADOW)

    def _until(self, at: float) -> dict[tuple[str, str], float]:
        """Requests by class and reason from the scene's zero up to a moment; admitted ones have reason ""."""
        while len(self._totals) <= int(at) + 1:
            load, sums = self.scene.load(len(self._totals)), dict(self._totals[-1])
            rates = {(name, ""): value for name, value in load.admitted.items()} | dict(load.refused)
            for key, value in rates.items():
                sums[key] = sums.get(key, 0.0) + value
            self._totals.append(sums)
        return self._totals[int(at)]

    def history(self, target: str, unix_s: float) -> monitor.GetHistoryResponse:
        """Ten minutes up to a moment, a point each two seconds."""
        answer = monitor.GetHistoryResponse()
        if target not in self.scene.targets:
            return answer
        series: dict[str, monitor.Series] = {}
        first, last = self.scene.hole
        for step in range(int(_SPAN_S // 2), -1, -1):
            at = unix_s - self.began - 2 * step
            if at < self.scene.began_s or first < at < last:
                continue
            for name, value in _values(
                self.scene.load(at), shadow=self.scene.mode == types.MODE_SHADOW
            ).items():
                if value is not None:
                    one = series.setdefault(name, monitor.Series(name=name))
                    one.unix_s.append(self.began + at)
                    one.value.append(value)
        answer.series.extend(series.values())
        return answer

    def decisions(self, target: str, unix_s: float) -> monitor.ListDecisionsResponse:
        """One refusal for each that the scene makes."""
        answer = monitor.ListDecisionsResponse()
        for cls, reason in self.scene.load(unix_s - self.began).refused:
            recorded = monitor.RecordedDecision(target=target, priority_class=cls, tenant="anonymous")
            recorded.at.FromSeconds(int(unix_s))
            recorded.decision.reason = types.Reason.Value(f"REASON_{reason}")
            recorded.decision.detail = _DETAILS.get(reason, "")
            answer.decisions.append(recorded)
        return answer


_DETAILS = {
    "QUEUE_FULL": "1,000 batch tickets wait, bound 1,000",
    "DEADLINE": "waited 60 s, patience 60 s",
    "TTFT_FORECAST": "expected first token in 2.6 s over SLO 2.3 s",
    "WATERMARK_KV": "KV usage 0.98 over critical 0.97",
}


def _add(
    cls: monitor.ClassSnapshot,
    verdict: types.Verdict.ValueType,
    reason: str,
    total: int,
    *,
    shadow: bool = False,
) -> None:
    item = monitor.Count(verdict=verdict, reason=types.Reason.Value(f"REASON_{reason}"), total=total)
    (cls.shadow_counts if shadow else cls.counts).append(item)


def _percentiles(p50: float) -> monitor.Percentiles:
    return monitor.Percentiles(p50=p50 * 0.7, p95=p50 * 1.25, p99=p50 * 1.6, count=400)


def _values(load: Load, *, shadow: bool) -> dict[str, float | None]:
    values: dict[str, float | None] = {
        "limit_tokens": load.limit,
        "used_tokens": load.used,
        "in_flight": load.in_flight,
        "kv_usage_ratio": load.kv,
        "admitted_per_s": sum(load.admitted.values()),
        "shadow_refused_per_s" if shadow else "refused_per_s": sum(load.refused.values()),
        f"vram_free_bytes:{_UUIDS[0]}": 6.2 * GIB if load.kv is not None else None,
        f"vram_free_bytes:{_UUIDS[1]}": load.free_bytes,
    }
    values |= {f"queued:{name}": load.queued.get(name, 0) for name in _CLASSES}
    if load.ttft_s is not None and load.tpot_s is not None:
        for name, p50 in (
            ("ttft", load.ttft_s),
            ("tpot", load.tpot_s),
            ("e2e", load.ttft_s + 190 * load.tpot_s),
        ):
            measured = _percentiles(p50)
            values |= {
                f"{name}_p50_s": measured.p50,
                f"{name}_p95_s": measured.p95,
                f"{name}_p99_s": measured.p99,
            }
    return values


def _gpu(target: str, uuid: str, load: Load) -> monitor.GpuSnapshot:
    free = load.free_bytes if load.free_bytes is not None else 6.2 * GIB
    gpu = monitor.GpuSnapshot(
        uuid=uuid,
        name="H100 80GB",
        host="node-7",
        target=target,
        memory_total_bytes=80 * GIB,
        memory_free_bytes=int(free),
        memory_used_bytes=int(80 * GIB - free),
        utilization_ratio=0.93,
        power_w=612,
        temperature_c=64,
        state="ok",
        vram_rule="preallocating",
        vram_rule_why="the engine took 91 % at start and memory is flat since",
        free_baseline_bytes=int(6.4 * GIB),
        critical_free_bytes=int(3.2 * GIB),
    )
    gpu.age.FromMilliseconds(180)
    return gpu


def _signal(target: str, name: str, source: str, interval_s: float, last: float) -> monitor.SignalSnapshot:
    signal = monitor.SignalSnapshot(
        target=target,
        name=name,
        source=source,
        state="fresh",
        last=last,
        lowest=last * 0.2,
        highest=last * 1.4,
        count=5_000,
    )
    signal.age.FromMilliseconds(int(interval_s * 600))
    signal.interval.FromMilliseconds(int(interval_s * 1000))
    return signal


class FakeMonitor(monitor_grpc.MonitorServiceServicer):
    """Plays a scene at the clock's pace; ten minutes of it have passed at the start."""

    def __init__(self, scene: Scene, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.play(scene)

    def play(self, scene: Scene) -> None:
        """Go over to another scene, ten minutes into it."""
        self._player = Player(scene, self._clock() - _SPAN_S)

    def GetSnapshot(  # noqa: N802  gRPC's name
        self, request: monitor.GetSnapshotRequest, context: grpc.ServicerContext
    ) -> monitor.GetSnapshotResponse:
        """Everything, as of now."""
        return monitor.GetSnapshotResponse(snapshot=self._player.snapshot(self._clock()))

    def WatchSnapshots(  # noqa: N802  gRPC's name
        self, request: monitor.WatchSnapshotsRequest, context: grpc.ServicerContext
    ) -> Iterator[monitor.WatchSnapshotsResponse]:
        """One snapshot: pages do not watch."""
        yield monitor.WatchSnapshotsResponse(snapshot=self._player.snapshot(self._clock()))

    def GetHistory(  # noqa: N802  gRPC's name
        self, request: monitor.GetHistoryRequest, context: grpc.ServicerContext
    ) -> monitor.GetHistoryResponse:
        """The last ten minutes."""
        return self._player.history(request.target, self._clock())

    def ListDecisions(  # noqa: N802  gRPC's name
        self, request: monitor.ListDecisionsRequest, context: grpc.ServicerContext
    ) -> monitor.ListDecisionsResponse:
        """The latest refusals."""
        return self._player.decisions(request.target, self._clock())


def serve(fake: FakeMonitor, address: str) -> tuple[grpc.Server, str]:
    """A started server and the address that it listens on; port 0 takes a free one. RuntimeError: the address is taken."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    monitor_grpc.add_MonitorServiceServicer_to_server(fake, server)
    port = server.add_insecure_port(address)
    server.start()
    return server, address if address.startswith("unix:") else f"{address.rsplit(':', 1)[0]}:{port}"


def main() -> None:
    """Serve one scene until ctrl-c."""
    parser = argparse.ArgumentParser(prog="python -m dashboard.fake", description=__doc__)
    parser.add_argument("scene", choices=sorted(SCENES))
    parser.add_argument("--listen", default="127.0.0.1:50052")
    chosen = parser.parse_args()
    server, _ = serve(FakeMonitor(SCENES[chosen.scene], time.time), chosen.listen)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
