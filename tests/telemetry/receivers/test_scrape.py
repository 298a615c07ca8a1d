"""Every scrape says whether the engine is up; why not is said in words; which engine it is has a name."""

from __future__ import annotations

from admission.vocabulary import EngineKind, SignalKind, Source
from telemetry.config import TargetBinding
from telemetry.receivers.exposition import Page, read_page
from telemetry.receivers.scrape import limits_for, members, tell
from tests.telemetry.receivers import pages
from tests.telemetry.receivers.recording import Recording

GOOD = read_page(pages.vllm().encode())
REFUSED = Page(problem="connection refused")


def test_a_good_scrape_says_up_and_its_values_at_its_time() -> None:
    """The time of a reading is its arrival: staleness is judged by it."""
    [member], emit = members((TargetBinding(),)), Recording()
    tell(member, GOOD, 12.5, emit)
    assert emit.values()[SignalKind.ENGINE_UP] == 1.0
    assert emit.values()[SignalKind.RUNNING] == 7.0
    assert {(r.at, r.source, r.member) for _, r in emit.readings} == {(12.5, Source.SCRAPE, "127.0.0.1:8000")}


def test_a_failed_scrape_says_down_and_nothing_else() -> None:
    """No value of the load may be invented: what is not known becomes stale."""
    [member], emit = members((TargetBinding(),)), Recording()
    tell(member, REFUSED, 1.0, emit)
    assert emit.values() == {SignalKind.ENGINE_UP: 0.0}
    assert emit.counts["scrape_failures"] == 1
    [report] = emit.signals
    assert (report.name, report.state, report.warning) == ("engine_up", "missing", "connection refused")
    assert "connection refused" in emit.warnings["scrape:default:127.0.0.1:8000"]


def test_a_good_scrape_takes_the_warning_back() -> None:
    """A warning that stays after the repair is not read the next time."""
    [member], emit = members((TargetBinding(),)), Recording()
    tell(member, REFUSED, 1.0, emit)
    tell(member, GOOD, 2.0, emit)
    assert emit.warnings == {}
    assert {report.name: report.warning for report in emit.signals} == {"engine_up": "", "engine vllm": ""}


def test_the_engine_keeps_its_name_while_it_is_down() -> None:
    """The dashboard goes on saying which engine it is that does not answer."""
    [member], emit = members((TargetBinding(),)), Recording()
    tell(member, GOOD, 1.0, emit)
    tell(member, REFUSED, 2.0, emit)
    assert member.engine is EngineKind.VLLM
    last = emit.signals[-1]
    assert (last.name, last.state, last.warning) == ("engine vllm", "missing", "connection refused")


def test_another_engine_on_the_same_port_replaces_the_first() -> None:
    """Somebody swapped the server; the old name must not stay as if it were there."""
    [member], emit = members((TargetBinding(),)), Recording()
    tell(member, GOOD, 1.0, emit)
    tell(member, read_page(pages.sglang().encode()), 2.0, emit)
    states = {report.name: report.state for report in emit.signals}
    assert states == {"engine_up": "fresh", "engine vllm": "missing", "engine sglang": "fresh"}


def test_values_that_cannot_be_are_counted() -> None:
    """So that an exporter that writes NaN is found."""
    [member], emit = members((TargetBinding(),)), Recording()
    tell(member, read_page(pages.vllm().replace("} 7.0", "} NaN").encode()), 1.0, emit)
    assert emit.counts["scrape_invalid_values"] == 1
    assert SignalKind.RUNNING not in emit.values()


def test_members_of_a_pool_are_told_apart_by_their_place() -> None:
    """Each has its own load; the pool's capacity is their sum."""
    urls = ("http://a:8000/metrics", "http://b:8000/metrics", "http://user:word@b:9000/x", "http://b:9000/y")
    found = members((TargetBinding(metrics_urls=urls),))
    assert [member.name for member in found] == ["a:8000", "b:8000", urls[2], urls[3]]


def test_an_overloaded_engine_gets_time_to_answer() -> None:
    """Late is not gone: a scrape each 0.1 s still waits 2 s, and one each minute does not wait 3 minutes."""
    assert limits_for(0.1).total_s == 2.0
    assert limits_for(60.0).total_s == 5.0
