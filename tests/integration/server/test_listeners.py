"""Who may reach what: control apart from clients, TLS, roles, reloads, taken addresses."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from admission.runtime.settings import ListenerConfig, Role, RolesConfig, ServerConfig, TlsFiles
from admission.server.listen import ListenError
from admission.vocabulary import Mode, Reason, Verdict
from tests.admission.server.desk import SLOTS, ticket, wire, words
from tests.integration.server.sidecar import (
    ANY_PORT,
    ControlServiceStub,
    MonitorServiceStub,
    asking,
    channel,
    control,
    eventually,
    hello,
    monitor,
    operating,
    running,
)

pytestmark = pytest.mark.integration


class Authority:
    """A certificate authority and the files it issued."""

    def __init__(self, folder: Path, name: str = "sidecar.test") -> None:
        self.ca = trustme.CA()
        self.folder = folder
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.ca_file))
        self.issue(name)

    def issue(self, name: str) -> None:
        """New server files in place of the old."""
        issued = self.ca.issue_cert(name)
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        (self.folder / "cert.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))

    def files(self, *, mutual: bool = False) -> TlsFiles:
        """For a listener."""
        return TlsFiles(
            cert=str(self.folder / "cert.pem"),
            key=str(self.folder / "key.pem"),
            client_ca=str(self.ca_file) if mutual else "",
        )

    def credentials(self, client: str = "") -> grpc.ChannelCredentials:
        """For a caller, with a certificate if named."""
        if not client:
            return grpc.ssl_channel_credentials(self.ca.cert_pem.bytes())
        issued = self.ca.issue_cert(client)
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        return grpc.ssl_channel_credentials(self.ca.cert_pem.bytes(), issued.private_key_pem.bytes(), chain)


def tls_server(files: TlsFiles, **more: Any) -> ServerConfig:
    """One TLS listener."""
    return ServerConfig(listeners=(ListenerConfig(address="127.0.0.1:0", tls=files),), **more)


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call failed."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    code: grpc.StatusCode = failed.value.code()
    return code


async def test_control_and_monitor_are_not_on_the_clients_port(tmp_path: Path) -> None:
    """Whoever may ask for permits may not switch the mode or read who was refused."""
    async with running(tmp_path) as sidecar, channel(sidecar.address) as opened:
        set_mode = ControlServiceStub(opened).SetMode(control.SetModeRequest(mode=Mode.OFF))
        assert await code_of(set_mode) is grpc.StatusCode.UNIMPLEMENTED
        look = MonitorServiceStub(opened).GetSnapshot(monitor.GetSnapshotRequest())
        assert await code_of(look) is grpc.StatusCode.UNIMPLEMENTED


async def test_the_control_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    """0600 from the first instant, in a folder of 0700 if we make it."""
    async with running(tmp_path / "run") as sidecar:
        path = Path(sidecar.server.control_address.removeprefix("unix:"))

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with operating(sidecar.server.control_address) as (look, _):
            answer = await look.GetSnapshot(monitor.GetSnapshotRequest())
        assert answer.snapshot.version == "test"
    assert not path.exists()


async def test_a_socket_left_by_a_crash_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    """A restart must work; a second sidecar must not steal the address."""
    async with running(tmp_path) as sidecar:
        with pytest.raises(ListenError, match="served by another process"):
            async with running(tmp_path):
                pass
        assert sidecar.server.ready
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    async with running(tmp_path) as again:
        assert again.server.ready


async def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    """Not a stack of gRPC internals."""
    async with running(tmp_path / "a") as sidecar:
        taken = ServerConfig(listeners=(ListenerConfig(address=sidecar.address),))
        with pytest.raises(ListenError, match=r"listen\.grpc\[0\].*taken"):
            async with running(tmp_path / "b", taken):
                pass


async def test_control_on_tcp_only_if_configured(tmp_path: Path) -> None:
    """For a fleet: with its own address."""
    config = ServerConfig(listeners=ANY_PORT, control=ListenerConfig(address="127.0.0.1:0"))
    async with running(tmp_path, config) as sidecar, operating(sidecar.server.control_address) as (look, _):
        assert (await look.GetSnapshot(monitor.GetSnapshotRequest())).snapshot.targets[0].name == "default"


async def test_tls_serves_those_who_trust_it_and_refuses_plain_text(tmp_path: Path) -> None:
    """The only way beyond loopback."""
    authority = Authority(tmp_path)
    async with running(tmp_path, tls_server(authority.files())) as sidecar:
        async with asking(sidecar.address, authority.credentials()) as stub:
            decision = (await stub.Acquire(wire.AcquireRequest(ticket=ticket()))).decision
            assert decision.verdict == Verdict.ADMITTED
        async with asking(sidecar.address) as stub:
            plain = stub.Acquire(wire.AcquireRequest(ticket=ticket()), timeout=2)
            assert await code_of(plain) is grpc.StatusCode.UNAVAILABLE


async def test_certificates_reload_without_a_restart(tmp_path: Path) -> None:
    """They are renewed every few days by machines; a file half written keeps the old one in force."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    authority, successor = Authority(old), Authority(new)
    async with running(tmp_path, tls_server(authority.files())) as sidecar:
        async with asking(sidecar.address, authority.credentials()) as stub:
            await stub.Acquire(wire.AcquireRequest(ticket=ticket()))

        (old / "cert.pem").write_bytes(b"half")
        async with asking(sidecar.address, authority.credentials()) as stub:
            await stub.Acquire(wire.AcquireRequest(ticket=ticket()))
        for name in ("cert.pem", "key.pem"):
            (old / name).write_bytes((new / name).read_bytes())
        async with asking(sidecar.address, successor.credentials()) as stub:
            decision = (await stub.Acquire(wire.AcquireRequest(ticket=ticket()), timeout=5)).decision

        assert decision.verdict == Verdict.ADMITTED


async def test_certificate_names_give_roles(tmp_path: Path) -> None:
    """A gateway may ask, a stranger with a certificate of the same authority may not."""
    authority = Authority(tmp_path)
    roles = RolesConfig(names={"gateway.test": (Role.CLIENT,)})
    async with running(tmp_path, tls_server(authority.files(mutual=True), roles=roles)) as sidecar:
        async with asking(sidecar.address, authority.credentials("gateway.test")) as stub:
            assert (
                await stub.Acquire(wire.AcquireRequest(ticket=ticket()))
            ).decision.verdict == Verdict.ADMITTED
        async with asking(sidecar.address, authority.credentials("stranger.test")) as stub:
            refused = stub.Acquire(wire.AcquireRequest(ticket=ticket()))
            assert await code_of(refused) is grpc.StatusCode.PERMISSION_DENIED
            stream = stub.Session()
            assert await code_of(stream.read()) is grpc.StatusCode.PERMISSION_DENIED
        async with asking(sidecar.address, authority.credentials()) as stub:
            nobody = stub.Acquire(wire.AcquireRequest(ticket=ticket()), timeout=2)
            assert await code_of(nobody) is grpc.StatusCode.UNAVAILABLE


async def test_tokens_give_roles_on_every_listener(tmp_path: Path) -> None:
    """Also on the control socket: a viewer may look and not touch."""
    (tmp_path / "tokens").write_text("client c\nviewer v\noperator o\n")
    roles = RolesConfig(token_file=str(tmp_path / "tokens"))

    def bearer(token: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {token}"),)

    async with (
        running(tmp_path, ServerConfig(listeners=ANY_PORT, roles=roles)) as sidecar,
        asking(sidecar.address) as stub,
        operating(sidecar.server.control_address) as (look, operate),
    ):
        asked = wire.AcquireRequest(ticket=ticket())
        assert (await stub.Acquire(asked, metadata=bearer("c"))).decision.verdict == Verdict.ADMITTED
        assert await code_of(stub.Acquire(asked, metadata=bearer("v"))) is grpc.StatusCode.PERMISSION_DENIED
        await look.GetSnapshot(monitor.GetSnapshotRequest(), metadata=bearer("v"))
        await look.GetSnapshot(monitor.GetSnapshotRequest(), metadata=bearer("o"))
        shadow = control.SetModeRequest(mode=int(Mode.SHADOW))
        assert (
            await code_of(operate.SetMode(shadow, metadata=bearer("v"))) is grpc.StatusCode.PERMISSION_DENIED
        )
        await operate.SetMode(shadow, metadata=bearer("o"))
        assert sidecar.host.view("default").mode is Mode.SHADOW


async def test_reflection_names_the_services_of_each_listener(tmp_path: Path) -> None:
    """grpcurl works, and shows clients nothing of control."""
    async with running(tmp_path) as sidecar:
        names = [await _services(address) for address in (sidecar.address, sidecar.server.control_address)]

    assert "admission.v1.AdmissionService" in names[0]
    assert "admission.v1.ControlService" not in names[0]
    assert {"admission.v1.MonitorService", "admission.v1.ControlService"} <= names[1]


async def _services(address: str) -> set[str]:
    async with channel(address) as opened:
        stub = reflection_pb2_grpc.ServerReflectionStub(opened)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")

        async def once() -> object:
            yield asked

        async for answer in stub.ServerReflectionInfo(once()):
            return {each.name for each in answer.list_services_response.service}
    return set()


def _shed(classes: Any) -> list[Any]:
    return [count for each in classes for count in each.counts if count.verdict == Verdict.SHED]


async def test_health_turns_with_the_drain_and_permits_may_finish(tmp_path: Path) -> None:
    """Readiness goes false first, waiters get an answer, grants in flight finish, clients are told."""
    async with (
        running(tmp_path) as sidecar,
        asking(sidecar.address) as stub,
        channel(sidecar.address) as opened,
    ):
        health = health_pb2_grpc.HealthStub(opened)
        serving = health_pb2.HealthCheckResponse
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == serving.SERVING
        stream = await hello(stub)
        await stream.write(wire.SessionRequest(acquires=[ticket(no) for no in range(1, SLOTS + 2)], seen=1))
        await stream.read()
        await stream.write(wire.SessionRequest(held_count=SLOTS, seen=2))

        draining = asyncio.create_task(sidecar.server.drain(5.0))
        told = await stream.read()

        assert told.drain_in.seconds in (4, 5)
        assert [(each.verdict, each.reason) for each in told.decisions] == [(Verdict.SHED, Reason.DRAINING)]
        counted = sidecar.server.monitor.snapshot().targets[0].classes
        assert [each.reason for each in _shed(counted)] == [Reason.DRAINING], "not as if the caller had left"
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == serving.NOT_SERVING
        assert not sidecar.server.ready
        refused = (await stub.Acquire(wire.AcquireRequest(ticket=ticket()))).decision
        assert refused.verdict == Verdict.REJECTED
        assert not draining.done()
        await stream.write(
            wire.SessionRequest(
                finishes=[words.Finish(no=no, outcome=1) for no in range(1, SLOTS + 1)], seen=told.seq
            )
        )
        assert await draining
        stream.cancel()


async def test_a_drain_ends_in_time_though_permits_are_held(tmp_path: Path) -> None:
    """A request that never ends must not hold an upgrade."""
    async with running(tmp_path) as sidecar, asking(sidecar.address) as stub:
        await stub.Acquire(wire.AcquireRequest(ticket=ticket()))

        assert not await sidecar.server.drain(0.3)


async def test_snapshots_history_and_decisions_tell_what_happened(tmp_path: Path) -> None:
    """What the dashboard draws."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with (
        running(tmp_path) as sidecar,
        asking(sidecar.address) as stub,
        operating(sidecar.server.control_address) as (look, _),
    ):
        for number in range(SLOTS):
            await stub.Acquire(wire.AcquireRequest(ticket=ticket(request_id=f"r{number}")))
        refused = ticket(
            request_id="late",
            traceparent=f"00-{trace}-b7ad6b7169203331-01",
            patience=Duration(),
            tenant="acme",
        )
        await stub.Acquire(wire.AcquireRequest(ticket=refused))
        await asyncio.sleep(2.3)

        snapshot = (await look.GetSnapshot(monitor.GetSnapshotRequest())).snapshot
        (target,) = snapshot.targets
        batch = next(each for each in target.classes if each.name == "batch")
        assert (target.in_flight, target.mode) == (SLOTS, Mode.ENFORCE)
        assert {(each.verdict, each.reason): each.total for each in batch.counts} == {
            (1, 0): SLOTS,
            (3, 3): 1,
        }
        assert snapshot.decision_time.count >= SLOTS
        for match in ("late", trace):
            listed = await look.ListDecisions(monitor.ListDecisionsRequest(match=match, refused_only=True))
            (found,) = listed.decisions
            assert (found.request_id, found.trace_id, found.tenant) == ("late", trace, "acme")
            assert found.decision.reason == 3
        history = await look.GetHistory(monitor.GetHistoryRequest(series=["in_flight", "admitted_per_s"]))
        lines = {line.name: line for line in history.series}
        assert lines["in_flight"].value[-1] == SLOTS
        assert len(lines["in_flight"].unix_s) == len(lines["in_flight"].value) >= 2
        unknown = look.GetHistory(monitor.GetHistoryRequest(target="nothing"))
        assert await code_of(unknown) is grpc.StatusCode.NOT_FOUND


async def test_watching_gives_a_snapshot_each_interval(tmp_path: Path) -> None:
    """`status --watch` and the dashboard live on it."""
    async with running(tmp_path) as sidecar, operating(sidecar.server.control_address) as (look, _):
        watch = look.WatchSnapshots(monitor.WatchSnapshotsRequest(interval=Duration(nanos=200_000_000)))

        seen = [await watch.read() for _ in range(3)]
        watch.cancel()

        assert [each.snapshot.targets[0].name for each in seen] == ["default"] * 3
        assert seen[0].snapshot.at.ToNanoseconds() < seen[2].snapshot.at.ToNanoseconds()
        await eventually(lambda: sidecar.server.monitor._watchers == 0)


async def test_operators_change_mode_drain_and_limit(tmp_path: Path) -> None:
    """And wrong names and values are told apart from failures."""
    async with running(tmp_path) as sidecar, operating(sidecar.server.control_address) as (_, operate):
        await operate.SetDrain(control.SetDrainRequest(drain=True))
        assert sidecar.host.view("default").draining
        await operate.SetDrain(control.SetDrainRequest(target="default", drain=False))
        assert not sidecar.host.view("default").draining
        await operate.SetLimit(control.SetLimitRequest(limit_tokens=12_345))
        assert sidecar.host.view("default").limit == 12_345
        off = await operate.SetMode(control.SetModeRequest(mode=int(Mode.OFF)))
        assert list(off.targets) == ["default"]
        nothing = operate.SetDrain(control.SetDrainRequest(target="nothing", drain=True))
        assert await code_of(nothing) is grpc.StatusCode.NOT_FOUND
        assert await code_of(operate.SetMode(control.SetModeRequest())) is grpc.StatusCode.INVALID_ARGUMENT
        assert await code_of(operate.Reload(control.ReloadRequest())) is grpc.StatusCode.UNIMPLEMENTED


class _Outcome:
    applied, errors, changed, needs_restart = True, (), ("targets[0].mode",), ("server.listeners",)


async def test_reload_asks_the_application(tmp_path: Path) -> None:
    """Reading files is not the server's business."""

    async def reload() -> _Outcome:
        return _Outcome()

    async with (
        running(tmp_path, reload=reload) as sidecar,
        operating(sidecar.server.control_address) as (_, operate),
    ):
        answer = await operate.Reload(control.ReloadRequest())

    assert answer.applied
    assert list(answer.changed) == ["targets[0].mode"]
    assert list(answer.needs_restart) == ["server.listeners"]
