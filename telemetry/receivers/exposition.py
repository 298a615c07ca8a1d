"""From the bytes of a metrics page to the signals of the engine that wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from admission.vocabulary import EngineKind, SignalKind
from telemetry.receivers.engines import EngineNames, PageSample, discover, extract


@dataclass(frozen=True, slots=True)
class Page:
    """What one page said. With `problem` set it is no page of an engine we know, and `values` is empty."""

    engine: EngineKind = EngineKind.UNKNOWN
    values: dict[SignalKind, float] = field(default_factory=dict)
    invalid: int = 0
    """Lines that are no samples, and values that cannot be: not finite, negative, a ratio above 1."""
    problem: str = ""


def read_page(body: bytes, engines: Sequence[EngineNames] | None = None) -> Page:
    """Reads a page in the Prometheus text format; never raises, whatever the bytes."""
    text = body.decode("utf-8", errors="replace")
    tables = discover() if engines is None else engines
    best = Page(problem=_what_else(text))
    for engine in tables:
        if not _speaks(text, engine.prefix):
            continue
        page = _read(text, engine)
        if len(page.values) > len(best.values) or best.engine is EngineKind.UNKNOWN:
            best = page
    return best


def _speaks(text: str, prefix: str) -> bool:
    return text.startswith(prefix) or f"\n{prefix}" in text


def _read(text: str, engine: EngineNames) -> Page:
    lines = wanted_lines(text, engine.names)
    samples, broken = _samples(lines)
    values, invalid = extract(engine, samples)
    if values:
        return Page(engine.kind, values, broken + invalid)
    names = f"none of the known names under {engine.prefix}"
    return Page(engine.kind, {}, broken + invalid, f"the page has {names}")


def wanted_lines(text: str, names: frozenset[str]) -> list[str]:
    """The lines whose sample name is in `names`: the full parser costs 15 times as much over all of them."""
    return [line for line in text.split("\n") if _name(line) in names]


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def _samples(lines: Sequence[str]) -> tuple[list[PageSample], int]:
    """One broken line would make the parser refuse all of them, so then each line is tried alone."""
    try:
        return list(_parsed(lines)), 0
    except ValueError:
        pass
    samples: list[PageSample] = []
    broken = 0
    for line in lines:
        try:
            samples += _parsed((line,))
        except ValueError:
            broken += 1
    return samples, broken


def _parsed(lines: Iterable[str]) -> Iterable[PageSample]:
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        for sample in family.samples:
            yield PageSample(sample.name, sample.labels, float(sample.value))


def _what_else(text: str) -> str:
    """Says what a page without a known prefix seems to be."""
    start = text[:512].lstrip("\ufeff \t\r\n").lower()
    if not start:
        return "the page is empty"
    if start.startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        return "the page is HTML, not metrics"
    if start.startswith(("{", "[")):
        return "the page is JSON, not metrics"
    known = ", ".join(sorted(engine.prefix for engine in discover()))
    return f"the page has no metric of a known engine ({known})"
