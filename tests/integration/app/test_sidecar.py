"""The composition root inside the test's own loop: what it says, keeps and refuses."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from admission.app import CannotStartError, Sidecar, serve, telemetry_config
from admission.config.load import load
from admission.core.model import Ticket, TicketId
from admission.vocabulary import Mode
from tests.integration.app.serving import free_port

pytestmark = pytest.mark.integration


class Files:
    """A configuration on free ports, with telemetry quiet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tidegate.yaml"
        self.ports = [free_port() for _ in range(2)]

    def write(self, more: str = "", listen: str = "") -> None:
        """The file: the ports of this test, and more."""
        grpc, http = self.ports
        self.file.write_text(
            f"listen: {{grpc: ['127.0.0.1:{grpc}'], http: '127.0.0.1:{http}', control: 'unix:{self.folder}/c.sock'{listen}}}\n"
            f"telemetry: {{otlp_grpc: '', otlp_http: '', nvml: false, in_process: true}}\n"
            f"state_dir: {self.folder}/state\n{more}"
        )

    @asynccontextmanager
    async def running(self, more: str = "", listen: str = "") -> AsyncIterator[Sidecar]:
        """A sidecar that serves."""
        self.write(more, listen)
        sidecar = Sidecar(load(self.file, {}), {})
        await sidecar.start()
        try:
            yield sidecar
        finally:
            await sidecar.stop()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The files of this test."""
    return Files(tmp_path)


def ticket(no: int) -> Ticket:
    """A small one."""
    return Ticket(TicketId("o", no), prompt_tokens=10, max_tokens=10)


async def test_each_minute_says_the_mode_and_what_shadow_would_have_done(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """In shadow nothing hurts, so nobody looks: the log says it without being asked."""
    async with files.running() as sidecar:
        sidecar.host.set_drain("default", True)
        sidecar.host.submit("default", ticket(1))
        with caplog.at_level(logging.INFO, "admission.app"):
            logging.getLogger("admission").propagate = True
            await sidecar.say()

    (record,) = [record for record in caplog.records if record.message == "target"]
    said = vars(record)
    assert (said["target"], said["mode"], said["admitted"], said["refused"]) == ("default", "shadow", 1, 0)
    assert (said["enforce_would_refuse"], said["reasons"]) == (1, ["DRAINING:1"])


async def test_readiness_follows_life(files: Files) -> None:
    """Starting, serving, draining by hand, draining to stop: each is said by its name."""
    files.write()
    sidecar = Sidecar(load(files.file, {}), {})
    seen = [sidecar.not_ready()]
    await sidecar.start()
    seen.append(sidecar.not_ready())
    sidecar.host.set_drain("default", True)
    seen.append(sidecar.not_ready())
    await sidecar.drain()
    await sidecar.stop()
    seen.append(sidecar.not_ready())

    assert seen == ["starting", "", "draining", "stopped"]


async def test_one_target_that_drains_does_not_take_the_others_away(files: Files) -> None:
    """Readiness is of the process: while it can serve anything, traffic should come."""
    async with files.running("targets: [{name: a}, {name: b, models: [x]}]\n") as sidecar:
        sidecar.host.set_drain("a", True)

        assert sidecar.not_ready() == ""


async def test_a_disk_that_fails_while_running_is_shown_and_recovers(files: Files) -> None:
    """The warning must go when the reason has gone."""
    async with files.running() as sidecar:
        blocker = files.folder / "state" / "limits.new"
        blocker.mkdir()
        await sidecar.save()
        ill = sidecar.server.monitor.warnings()
        blocker.rmdir()
        await sidecar.save()

        assert any("memory only" in line for line in ill)
        assert not any("memory only" in line for line in sidecar.server.monitor.warnings())


async def test_a_reload_without_a_change_changes_nothing(files: Files) -> None:
    """Deployments send SIGHUP whether or not anything is new."""
    async with files.running() as sidecar:
        before = sidecar.settings
        outcome = await sidecar.reload()

        assert (outcome.applied, outcome.changed, outcome.needs_restart) == (True, (), ())
        assert sidecar.settings == before


async def test_a_file_that_vanished_keeps_what_is_in_force(files: Files) -> None:
    """A config map that is being replaced is gone for an instant."""
    async with files.running("targets: [{mode: enforce}]\n") as sidecar:
        files.file.unlink()
        outcome = await sidecar.reload()

        assert not outcome.applied
        assert "cannot be read" in outcome.errors[0]
        assert sidecar.host.view("default").mode is Mode.ENFORCE


async def test_limits_come_back_with_the_next_start(files: Files) -> None:
    """The first second after an upgrade must not be the first second of a new life."""
    async with files.running() as sidecar:
        key = (files.folder / "state" / "tenant_key").read_bytes()
        sidecar.host.set_limit("default", 7_777, 60.0)
        await sidecar.save()
    async with files.running() as again:
        saved = again.store.load()

        assert saved["default"].limit == sidecar.host.saved()["default"].limit
        assert (files.folder / "state" / "tenant_key").read_bytes() == key


async def test_the_journal_is_written_and_can_be_switched_off(files: Files) -> None:
    """256 MB of ring is a default, not a duty."""
    async with files.running("journal: {enabled: false}\n"):
        assert not (files.folder / "state" / "journal").exists()
    async with files.running() as sidecar:
        sidecar.host.submit("default", ticket(1))

    assert list((files.folder / "state" / "journal").iterdir())


async def test_the_telemetry_role_reaches_the_telemetry_process(files: Files) -> None:
    """One token file says who may do what; OTLP must not need a second list."""
    tokens = files.folder / "tokens"
    tokens.write_text("telemetry sender-secret\nviewer eye-secret\n")
    files.write(listen=f", roles: {{token_file: {tokens}}}")

    assert telemetry_config(load(files.file, {}).settings).tokens == ("sender-secret",)


@pytest.mark.parametrize("text", [None, "emperor secret\n"])
async def test_a_bad_token_file_ends_the_start_with_its_setting(files: Files, text: str | None) -> None:
    """Without its tokens a listener would be open to everybody or to nobody."""
    tokens = files.folder / "tokens"
    if text is not None:
        tokens.write_text(text)
    files.write(listen=f", roles: {{token_file: {tokens}}}")

    with pytest.raises(CannotStartError, match=r"listen\.roles\.token_file: "):
        await serve(load(files.file, {}), {})


async def test_a_start_that_fails_leaves_nothing_behind(files: Files) -> None:
    """Half a sidecar is worse than none: the next start must find its ports and its directory free."""
    files.write()
    first = Sidecar(load(files.file, {}), {})
    await first.start()
    other = Files(files.folder / "two")
    other.folder.mkdir()
    other.ports = [files.ports[0], other.ports[1]]
    with pytest.raises(CannotStartError, match=r"listen\.grpc\[0\]"):
        async with other.running():
            pass
    await first.stop()

    async with other.running() as sidecar:
        assert sidecar.store.writable


async def test_no_http_surface_when_it_is_not_wanted(files: Files) -> None:
    """An empty address switches a listener off."""
    files.write()
    settings = load(files.file, {"TIDEGATE_LISTEN__HTTP": ""})
    sidecar = Sidecar(settings, {})
    await sidecar.start()
    await sidecar.stop()

    assert sidecar.http is None
