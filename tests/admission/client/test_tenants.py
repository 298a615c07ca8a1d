"""Which API keys are tenants: those that the application has served."""

from __future__ import annotations

from typing import Any

from admission.client import tickets
from admission.client.request import Facts
from admission.client.settings import ClientSettings
from admission.client.tickets import TicketMaker
from admission.vocabulary import Reason
from tests.admission.client.host import Engine, Guarded, say, start
from tests.admission.client.sidecar import admit, refuse


def _bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {key}".encode())]


def _tenant(maker: TicketMaker, key: str) -> str:
    return maker.ticket("/v1/chat/completions", _bearer(key), Facts()).tenant


def _maker() -> TicketMaker:
    return TicketMaker(ClientSettings(tenant_secret="pepper"))


async def _checks_keys(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    known = dict(scope["headers"]).get(b"authorization") == b"Bearer real"
    await start(send, 200 if known else 401, b"application/json")
    await say(send, b"{}", more=False)


async def test_a_key_is_a_tenant_once_the_application_has_served_it() -> None:
    """A key costs nothing to invent, and each would have had a tenant's share."""
    guarded = Guarded(Engine(_checks_keys), tenant_secret="pepper")
    for key in ("real", "invented", "real", "invented"):
        await guarded.post(headers={"authorization": f"Bearer {key}"})
    tenants = [ticket.tenant for ticket in guarded.sidecar.tickets]
    assert tenants[2].startswith("key-")
    assert tenants == ["", "", tenants[2], ""]


async def test_our_own_refusals_say_nothing_about_a_key() -> None:
    """The application has not seen it."""
    guarded = Guarded(Engine(_checks_keys), refuse(Reason.QUOTA), tenant_secret="pepper")
    await guarded.post(headers={"authorization": "Bearer real"})
    guarded.sidecar.policy = admit
    await guarded.post(headers={"authorization": "Bearer real"})
    assert guarded.sidecar.tickets[1].tenant == ""


def test_ten_thousand_invented_keys_are_one_tenant() -> None:
    """And none of them takes the place of a real one."""
    maker = _maker()
    maker.answered(_bearer("real"), 200)
    for each in range(10_000):
        key = f"invented-{each}"
        assert _tenant(maker, key) == ""
        maker.answered(_bearer(key), 401 if each % 2 else 403)
    assert _tenant(maker, "real")


def test_a_key_that_was_withdrawn_is_forgotten() -> None:
    """Its holder is anonymous from then on."""
    maker = _maker()
    maker.answered(_bearer("real"), 200)
    maker.answered(_bearer("real"), 429)
    assert _tenant(maker, "real")
    maker.answered(_bearer("real"), 401)
    assert _tenant(maker, "real") == ""


def test_an_error_does_not_prove_a_key() -> None:
    """Bodies and paths may be judged before keys are."""
    maker = _maker()
    for status in (400, 404, 422, 429, 500):
        maker.answered(_bearer("invented"), status)
    assert _tenant(maker, "invented") == ""


def test_the_keys_remembered_are_bounded_and_the_used_ones_stay() -> None:
    """An application that checks no keys must not grow us."""
    maker = _maker()
    maker.answered(_bearer("real"), 200)
    for each in range(tickets._MAX_KEYS + 100):
        maker.answered(_bearer(str(each)), 200)
        assert _tenant(maker, "real")
    assert len(maker._served) == tickets._MAX_KEYS
    assert _tenant(maker, "0") == ""
