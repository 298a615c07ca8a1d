"""Facts out of the scripted scenes, without a server and without a clock."""

from __future__ import annotations

from collections.abc import Callable

from admission.v1 import monitor_service_pb2 as monitor
from dashboard.causes import Facts
from dashboard.fake import Player
from dashboard.picture import Picture
from dashboard.rates import RateWindow
from dashboard.scenes import SCENES
from dashboard.source import read_history

BEGAN = 1_800_000_000.0
NOW_S = 600.0


def facts_of(
    scene: str,
    at: float = NOW_S,
    *,
    target: str | None = None,
    away: str = "",
    age_s: float = 0.4,
    touch: Callable[[monitor.Snapshot], None] = lambda _snapshot: None,
) -> Facts:
    """What the page knows of a scene at a moment, after a minute and more of watching it."""
    player = Player(SCENES[scene], BEGAN)
    window = RateWindow()
    for second in range(75, -1, -1):
        if at - second >= 0:
            window.add(player.snapshot(BEGAN + at - second))
    snapshot = player.snapshot(BEGAN + at)
    touch(snapshot)
    picture = Picture(snapshot, age_s, away, "unix:/run/tidegate/control.sock")
    found = picture.target(target)
    assert found is not None
    history = read_history(player.history(found.name, BEGAN + at))
    return Facts(picture, found, window.rates(found.name), history)
