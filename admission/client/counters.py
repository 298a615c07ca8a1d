"""What the client counts about itself, and how that reads in Prometheus text."""

from __future__ import annotations

from collections import Counter

_HELP = {
    "asked": "Tickets that asked to run.",
    "admitted": "Tickets admitted, by who decided.",
    "queued": "Tickets that the sidecar queued.",
    "refused": "Tickets refused, by reason.",
    "refused_locally": "Tickets refused by the client itself while the sidecar was away.",
    "passed": "Requests let through without asking, by cause.",
    "missed": "Decisions that did not come in time.",
    "silences": "Times the client stopped asking because decisions were missed.",
    "cancelled": "Tickets taken back before an answer.",
    "finished": "Permits given back, by outcome.",
    "attached": "Streams to the sidecar that were welcomed.",
    "broken": "Welcomed streams that broke.",
    "attach_failed": "Attempts to reach the sidecar that failed.",
    "restarts_seen": "Restarts of the sidecar.",
    "resyncs": "Times the sidecar asked for the list of permits.",
    "disowned": "Permits that the sidecar had ended already.",
    "late_decisions": "Decisions for tickets that no longer waited.",
    "off_file_unread": "Looks at the off file that failed.",
    "forked": "Streams not opened because gRPC had started before this process was forked.",
    "unread_bodies": "Request bodies not read, by cause.",
    "contained": "Faults of our own that were contained, by place.",
}
_LABEL = {
    "admitted": "by",
    "refused": "reason",
    "passed": "cause",
    "finished": "outcome",
    "unread_bodies": "cause",
    "contained": "place",
}


class Counters:
    """Counts by name and label value. Names and label values come from closed sets, so it is bounded."""

    def __init__(self) -> None:
        self.values: Counter[tuple[str, str]] = Counter()

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """Adds to one counter."""
        self.values[name, label] += by

    def get(self, name: str) -> int:
        """The sum over a counter's labels."""
        return sum(value for (known, _), value in self.values.items() if known == name)

    def flat(self) -> dict[str, int]:
        """All counts as `name` or `name.label`."""
        return {f"{name}.{label}" if label else name: value for (name, label), value in self.values.items()}


def prometheus_text(counters: Counters, gauges: dict[str, float]) -> str:
    """The Prometheus text exposition of counters and gauges; every counter is there from the start."""
    lines: list[str] = []
    for name, text in _HELP.items():
        full = f"tidegate_client_{name}_total"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} counter"]
        lines += _samples(full, _LABEL.get(name, ""), name, counters)
    for name, value in gauges.items():
        lines += [f"# TYPE tidegate_client_{name} gauge", f"tidegate_client_{name} {value:g}"]
    return "\n".join(lines) + "\n"


def _samples(full: str, label: str, name: str, counters: Counters) -> list[str]:
    if not label:
        return [f"{full} {counters.get(name)}"]
    found = sorted((key, value) for (known, key), value in counters.values.items() if known == name)
    return [f'{full}{{{label}="{key}"}} {value}' for key, value in found]
