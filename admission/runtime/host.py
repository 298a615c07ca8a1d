"""The asyncio host: gives every input its time, wakes the controllers, tells listeners what came out."""

from __future__ import annotations

import asyncio
import logging
import random as stdlib_random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from admission.core.controller import Controller, ControllerConfig, SavedState
from admission.core.model import Completion, Event, Held, Reading, Sample, Ticket, TicketId, View
from admission.runtime.inputs import ControllerPort, InputRecorder, MakeController, Op
from admission.runtime.routes import Routes
from admission.vocabulary import Mode

LOG = logging.getLogger(__name__)
_AFTER_FAILURE_S = 0.1
"""A controller that fails when it is woken is not woken again before this: it would keep the loop for itself."""


class EventListener(Protocol):
    """Who wants to know what happened? It must not feed inputs back from inside the call.

    One that fails is counted and logged, and keeps the event from nobody else.
    """

    def on_event(self, target: str, event: Event, now: float) -> None:
        """One event of one target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpec:
    """A target to protect: its name, the models it serves (globs) and how its controller starts."""

    name: str = "default"
    models: tuple[str, ...] = ("*",)
    config: ControllerConfig = field(default_factory=ControllerConfig)
    saved: SavedState | None = None


class Host:
    """One controller per target. Inputs by name of the target; KeyError for a name that is not one.

    Every method is to be called on the loop that `start` ran on.
    """

    def __init__(
        self,
        targets: Sequence[TargetSpec] = (TargetSpec(),),
        *,
        clock: Callable[[], float] = time.monotonic,
        random: stdlib_random.Random | None = None,
        journal: InputRecorder | None = None,
        make: MakeController = Controller,
    ) -> None:
        names = [target.name for target in targets]
        if not names or len(set(names)) != len(names):
            raise ValueError("targets: need at least one, each name once")
        self._clock = clock
        self._journal = journal
        self._tell: tuple[Callable[[str, Event, float], None], ...] = ()
        self.failures: dict[str, int] = {}
        """Exceptions that were contained, by whose they were: a listener, the journal, or a controller being woken."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = float("inf")
        self._rearm_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.routes = Routes({target.name: target.models for target in targets})
        self.configs = {target.name: target.config for target in targets}
        seeds = random or stdlib_random.Random()  # noqa: S311 - jitter, not secrets
        self._controllers = {
            target.name: make(
                target.config,
                random=stdlib_random.Random(seeds.getrandbits(64)),  # noqa: S311
                now=clock(),
                saved=target.saved,
            )
            for target in targets
        }

    # ---- life

    def start(self) -> None:
        """Take the running loop's timers."""
        self._loop = asyncio.get_running_loop()
        self._rearm()

    def stop(self) -> None:
        """Let the timer go; inputs still work."""
        if self._timer:
            self._timer.cancel()
        self._timer, self._loop, self._armed_at = None, None, float("inf")

    def listen(self, listener: EventListener) -> None:
        """Tell the listener every event from now on, after those that were there first: answers must come first."""
        self._tell = (*self._tell, listener.on_event)

    def record_to(self, journal: InputRecorder | None) -> None:
        """Record every input from now on."""
        self._journal = journal

    # ---- about one ticket

    def submit(self, target: str, ticket: Ticket) -> list[Event]:
        """A ticket asks; the returned events have its answer. ValueError when its id is known."""
        now = self._clock()
        return self._after(target, Op.SUBMIT, (ticket,), now, self._controllers[target].submit(ticket, now))

    def finish(self, target: str, id: TicketId, completion: Completion) -> list[Event]:
        """A permit comes back."""
        now = self._clock()
        events = self._controllers[target].finish(id, completion, now)
        return self._after(target, Op.FINISH, (id, completion), now, events)

    def first_token(self, target: str, id: TicketId, ago_s: float = 0.0) -> list[Event]:
        """The first output token came, `ago_s` seconds ago."""
        return self._input(target, Op.FIRST_TOKEN, id, late=(ago_s,))

    def progress(self, target: str, items: Iterable[tuple[TicketId, int, float]]) -> list[Event]:
        """New chunks of output per permit, with the age of the newest in seconds."""
        return self._input(target, Op.PROGRESS, list(items))

    def cancel(self, target: str, id: TicketId) -> list[Event]:
        """The caller left."""
        return self._input(target, Op.CANCEL, id)

    # ---- about an owner

    def renew(self, owner: str, targets: Iterable[str]) -> None:
        """The owner lives."""
        for target in targets:
            self._input(target, Op.RENEW, owner)

    def attach(self, owner: str) -> None:
        """The owner's stream is there."""
        self._everywhere(Op.ATTACH, owner)

    def detach(self, owner: str) -> None:
        """The owner's stream broke."""
        self._everywhere(Op.DETACH, owner)

    def leave(self, owner: str) -> None:
        """The owner is done: what it holds is free now."""
        self._everywhere(Op.LEAVE, owner)

    def stalled(self, owner: str, stalled: bool) -> None:
        """The owner cannot be written to, or can again."""
        self._everywhere(Op.STALLED, owner, stalled)

    def reinstate(self, target: str, held: Sequence[Held]) -> list[Event]:
        """Permits announced again."""
        return self._input(target, Op.REINSTATE, held)

    # ---- about a target

    def observe(self, target: str, reading: Reading) -> list[Event]:
        """A measured value."""
        return self._input(target, Op.OBSERVE, reading)

    def sample(self, target: str, sample: Sample) -> list[Event]:
        """A finished request as a span tells it."""
        return self._input(target, Op.SAMPLE, sample)

    def set_mode(self, target: str, mode: Mode) -> list[Event]:
        """Shadow, enforce or off."""
        return self._input(target, Op.SET_MODE, mode)

    def set_drain(self, target: str, drain: bool) -> list[Event]:
        """Stop admitting, or start again."""
        return self._input(target, Op.SET_DRAIN, drain)

    def set_limit(self, target: str, limit_tokens: int | None, hold_s: float | None) -> list[Event]:
        """Hold the limit for `hold_s` seconds, or give it back to the law with None."""
        until = None if hold_s is None else self._clock() + hold_s
        return self._input(target, Op.SET_LIMIT, limit_tokens, until)

    def reconfigure(self, target: str, config: ControllerConfig) -> list[Event]:
        """New configuration, from now on."""
        self.configs[target] = config
        return self._input(target, Op.RECONFIGURE, config)

    def tell(self, target: str, event: Event) -> None:
        """Tell the listeners what was decided in front of the controller; it is no input and not recorded."""
        self._tell_all(target, event, self._clock())

    # ---- to look at

    @property
    def targets(self) -> tuple[str, ...]:
        """Names, in the order of configuration."""
        return tuple(self._controllers)

    @property
    def controllers(self) -> dict[str, ControllerPort]:
        """For snapshots: look, do not touch."""
        return self._controllers

    def now(self) -> float:
        """The time that an input would get, in monotonic seconds."""
        return self._clock()

    def knows(self, target: str, id: TicketId) -> bool:
        """Whether the ticket waits or is in flight."""
        return self._controllers[target].knows(id)

    def view(self, target: str) -> View:
        """A copy of a target's state."""
        return self._controllers[target].view(self._clock())

    def saved(self) -> dict[str, SavedState]:
        """What each target would like to know after a restart."""
        now = self._clock()
        return {name: controller.save(now) for name, controller in self._controllers.items()}

    # ---- within

    def _everywhere(self, op: Op, *args: Any) -> None:
        for target in self._controllers:
            self._input(target, op, *args)

    def _input(self, target: str, op: Op, *args: Any, late: tuple[Any, ...] = ()) -> list[Event]:
        now = self._clock()
        events = getattr(self._controllers[target], op.method)(*args, now, *late)
        return self._after(target, op, args + late, now, events)

    def _after(
        self,
        target: str,
        op: Op,
        args: tuple[Any, ...],
        now: float,
        events: list[Event],
    ) -> list[Event]:
        if self._journal:
            try:
                self._journal.record(target, op, args, now, events)
            except Exception as error:  # noqa: BLE001 - no record is worth an answer
                self._failed(type(self._journal).__name__, error)
        for event in events:
            self._tell_all(target, event, now)
        if not self._rearm_due and self._loop is not None:
            # Once for all inputs of this turn of the loop: no timer can fire before it ends.
            self._rearm_due = True
            self._loop.call_soon(self._rearm)
        return events

    def _tell_all(self, target: str, event: Event, now: float) -> None:
        for on_event in self._tell:
            try:
                on_event(target, event, now)
            except Exception as error:  # noqa: BLE001 - a bug in what watches must not touch what answers
                self._failed(type(getattr(on_event, "__self__", on_event)).__name__, error)

    def _failed(self, who: str, error: Exception) -> None:
        self.failures[who] = self.failures.get(who, 0) + 1
        if self.failures[who] == 1:
            LOG.error("contained", exc_info=error, extra={"who": who})

    def _rearm(self) -> None:
        self._rearm_due = False
        at = min(self._wakeups(), default=None)
        # A timer that is early is left alone: when it fires, it looks again.
        if at is not None and at < self._armed_at:
            self._arm(at)

    def _arm(self, at: float, least_s: float = 0.0) -> None:
        if self._loop is None:
            return
        if self._timer:
            self._timer.cancel()
        self._armed_at = at
        self._timer = self._loop.call_later(max(at - self._clock(), least_s), self._wake)

    def _wake(self) -> None:
        self._timer, self._armed_at = None, float("inf")
        now = self._clock()
        for target, controller in self._controllers.items():
            at = controller.next_wakeup()
            if at is not None and at <= now:
                self._wake_one(target)
        if self._armed_at == float("inf"):
            self._rearm()

    def _wake_one(self, target: str) -> None:
        try:
            self._input(target, Op.WAKE)
        except Exception as error:  # noqa: BLE001 - the other controllers and the timer go on
            self._failed(f"controller {target}", error)
            self._arm(float("-inf"), _AFTER_FAILURE_S)

    def _wakeups(self) -> Iterator[float]:
        for controller in self._controllers.values():
            at = controller.next_wakeup()
            if at is not None:
                yield at
