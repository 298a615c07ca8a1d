"""Names of the inputs that a controller takes, as the host sends them and the journal records them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from admission.core.model import Completion, Event, Held, Reading, Sample, Ticket, TicketId, View
from admission.vocabulary import Mode

if TYPE_CHECKING:
    from admission.core.controller import ControllerConfig, SavedState


class Op(IntEnum):
    """One kind of input. The numbers are those of journals: never reuse one."""

    SUBMIT = 1
    FINISH = 2
    FIRST_TOKEN = 3
    PROGRESS = 4
    CANCEL = 5
    RENEW = 6
    ATTACH = 7
    DETACH = 8
    LEAVE = 9
    REINSTATE = 10
    OBSERVE = 11
    SAMPLE = 12
    WAKE = 13
    SET_MODE = 14
    SET_DRAIN = 15
    SET_LIMIT = 16
    RECONFIGURE = 17
    STALLED = 18

    @property
    def method(self) -> str:
        """The controller's method."""
        return self.name.lower()


class ControllerPort(Protocol):
    """What decides? One target's state machine, as the host sees it."""

    def submit(self, ticket: Ticket, now: float) -> list[Event]:
        """A ticket asks; ValueError when its id is known."""

    def finish(self, id: TicketId, completion: Completion, now: float) -> list[Event]:
        """A permit comes back."""

    def first_token(self, id: TicketId, now: float, ago_s: float = 0.0) -> list[Event]:
        """The first output token came."""

    def progress(self, items: Iterable[tuple[TicketId, int, float]], now: float) -> list[Event]:
        """New chunks of output."""

    def cancel(self, id: TicketId, now: float) -> list[Event]:
        """The caller left."""

    def renew(self, owner: str, now: float) -> list[Event]:
        """The owner lives."""

    def attach(self, owner: str, now: float) -> list[Event]:
        """The owner's stream is there."""

    def detach(self, owner: str, now: float) -> list[Event]:
        """The owner's stream broke."""

    def leave(self, owner: str, now: float) -> list[Event]:
        """The owner is done."""

    def reinstate(self, held: Sequence[Held], now: float) -> list[Event]:
        """Permits announced again."""

    def observe(self, reading: Reading, now: float) -> list[Event]:
        """A measured value."""

    def sample(self, sample: Sample, now: float) -> list[Event]:
        """A finished request as a span tells it."""

    def wake(self, now: float) -> list[Event]:
        """The time asked for has come."""

    def set_mode(self, mode: Mode, now: float) -> list[Event]:
        """Shadow, enforce or off."""

    def set_drain(self, drain: bool, now: float) -> list[Event]:
        """Stop admitting, or start again."""

    def set_limit(self, limit_tokens: int | None, until: float | None, now: float) -> list[Event]:
        """Hold the limit."""

    def reconfigure(self, config: ControllerConfig, now: float) -> list[Event]:
        """New configuration."""

    def stalled(self, owner: str, stalled: bool, now: float) -> list[Event]:
        """The owner cannot be written to."""

    def next_wakeup(self) -> float | None:
        """When to wake it."""

    def view(self, now: float) -> View:
        """A copy for people."""

    def save(self, now: float) -> SavedState:
        """What survives a restart."""

    def knows(self, id: TicketId) -> bool:
        """Whether the ticket waits or is in flight."""

    def held_by(self, owner: str) -> list[TicketId]:
        """The permits of an owner."""


MakeController = Callable[..., ControllerPort]
"""Called as Controller: (config, *, random, now, saved)."""


class InputRecorder(Protocol):
    """Who keeps what went in and what came out? The journal."""

    def record(self, target: str, op: Op, args: tuple[Any, ...], now: float, events: list[Event]) -> None:
        """Called once per input, on the hot path."""
