"""What has gathered for the sidecar since the last message, and how it reads on the wire."""

from __future__ import annotations

from admission.client.calls import Call, CallState, set_duration
from admission.client.holdings import Holdings
from admission.client.link import Link, LinkState
from admission.v1.admission_service_pb2 import Held, SessionRequest
from admission.v1.types_pb2 import Finish

_MAX_ENDED = 4096
_PROGRESS_S = 0.2


class Outbox:
    """Gathers what is to be said; `compose` writes everything into one message and starts afresh.

    Everything goes at once, except progress (every 0.2 s) and heartbeats (when nothing else was said).
    """

    def __init__(self, identity: bytes, name: str, link: Link, held: Holdings, now: float) -> None:
        self._identity, self._name, self._link, self._held = identity, name, link, held
        self._acquires: dict[int, Call] = {}
        self._cancels: list[int] = []
        self._finishes: list[Finish] = []
        self._first_tokens: list[tuple[int, int]] = []
        self._last_chunks: list[tuple[int, int, float]] = []
        self._dirty: list[Call] = []
        self._ended: list[tuple[Call, Finish]] = []
        self._hello = self._resync = False
        self._heartbeat_at = self._progress_at = now

    def begin(self, now: float) -> None:
        """A stream is open: Hello goes first."""
        self._hello = True
        self._heartbeat_at = now

    def welcomed(self) -> None:
        """Hello arrived, and with it what had ended before."""
        self._ended.clear()

    def drop(self) -> None:
        """The stream broke: what was meant for it is void. Ends that no Welcome confirmed are told by the next Hello."""
        for gathered in (self._cancels, self._finishes, self._first_tokens, self._last_chunks, self._dirty):
            gathered.clear()
        self._acquires.clear()
        self._hello = self._resync = False

    # ---- what is to be said

    def acquire(self, call: Call) -> None:
        """A question. Without a stream it is asked when there is one."""
        if self._link.state is not LinkState.DOWN:
            self._acquires[call.no] = call

    def cancel(self, call: Call) -> None:
        """Takes a question back; the sidecar hears of it only if it has the question."""
        if self._link.state is not LinkState.DOWN and self._acquires.pop(call.no, None) is None:
            self._cancels.append(call.no)

    def first_token(self, call: Call) -> None:
        """The first output of a permit came just now."""
        if call.announced and not call.disowned and self._link.state is not LinkState.DOWN:
            self._first_tokens.append((call.no, max(0, round((call.newest_at - call.admitted_at) * 1000))))

    def chunks(self, call: Call, count: int) -> None:
        """More output of a permit came."""
        if call.announced and not call.disowned:
            if not call.unsent:
                self._dirty.append(call)
            call.unsent += count

    def finish(self, call: Call, finish: Finish) -> None:
        """A permit ended."""
        if not call.announced or call.disowned:
            return
        if self._link.state is not LinkState.ATTACHED and len(self._ended) < _MAX_ENDED:
            self._ended.append((call, finish))
        if self._link.state is LinkState.DOWN or self._hello:
            return
        if call.unsent:
            self._last_chunks.append((call.no, call.unsent, call.newest_at))
        self._finishes.append(finish)

    def resync(self) -> None:
        """The sidecar asked for the list of permits."""
        self._resync = True

    # ---- the message

    def next_wakeup(self) -> float | None:
        """When a message is due that nothing but time asks for; None without a stream."""
        if self._link.state is LinkState.DOWN:
            return None
        return min(self._heartbeat_at, self._progress_at) if len(self._held) else self._heartbeat_at

    def compose(self, now: float) -> SessionRequest | None:
        """The next message, None when there is nothing to say."""
        if self._link.state is LinkState.DOWN:
            return None
        with_progress = now >= self._progress_at
        if with_progress:
            self._progress_at = now + _PROGRESS_S
        if not (self._urgent or now >= self._heartbeat_at or (with_progress and self._dirty)):
            return None
        message = SessionRequest(seen=self._link.seen)
        if self._hello:
            self._say_hello(message, now)
        elif self._resync:
            message.resynced = True
            message.held.extend([_announce(call, now) for call in self._held.announceable()])
        self._resync = False
        self._say_progress(message, now, with_progress=with_progress)
        self._say_rest(message)
        message.held_count = self._held.announceable_count
        self._heartbeat_at = now + self._link.heartbeat_s
        return message

    @property
    def _urgent(self) -> bool:
        said = self._acquires or self._finishes or self._first_tokens or self._cancels
        return bool(said) or self._hello or self._resync

    def _say_hello(self, message: SessionRequest, now: float) -> None:
        """Announces what is held; what ended meanwhile is announced together with its end."""
        hello = message.hello
        hello.session, hello.attach, hello.client = self._identity, self._link.attach, self._name
        hello.held.extend([_announce(call, now) for call in self._held.announceable()])
        hello.held.extend([_announce(call, now) for call, _ in self._ended])
        message.finishes.extend([finish for _, finish in self._ended])
        self._dirty.clear()
        self._hello = False

    def _say_progress(self, message: SessionRequest, now: float, *, with_progress: bool) -> None:
        progress = list(self._last_chunks)
        self._last_chunks.clear()
        if with_progress:
            for call in self._dirty:
                if call.state is CallState.HELD and call.unsent:
                    progress.append((call.no, call.unsent, call.newest_at))
                    call.unsent = 0
            self._dirty.clear()
        if progress:
            message.progress.no.extend([no for no, _, _ in progress])
            message.progress.chunks.extend([chunks for _, chunks, _ in progress])
            message.progress.age_ms.extend([max(0, round((now - at) * 1000)) for _, _, at in progress])

    def _say_rest(self, message: SessionRequest) -> None:
        if self._first_tokens:
            message.first_tokens.no.extend([no for no, _ in self._first_tokens])
            message.first_tokens.ttft_ms.extend([ttft_ms for _, ttft_ms in self._first_tokens])
            self._first_tokens.clear()
        message.finishes.extend(self._finishes)
        message.cancels.extend(self._cancels)
        message.acquires.extend([call.ticket for call in self._acquires.values()])
        self._finishes.clear()
        self._cancels.clear()
        self._acquires.clear()


def _announce(call: Call, now: float) -> Held:
    """One held permit for the sidecar; from now on it is announced and its chunks so far are told."""
    held = Held(
        no=call.no,
        ticket=call.ticket,
        first_token=call.first_token_at is not None,
        chunks=call.chunks,
        local=call.local,
    )
    set_duration(held.age, now - call.admitted_at)
    call.announced, call.unsent = True, 0
    return held
