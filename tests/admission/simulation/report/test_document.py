"""What a program reads: the keys, and that they hold what the report says."""

from __future__ import annotations

import json

from admission.simulation.report.document import FORMAT, document
from tests.admission.simulation.report.shown import run

ROW = set(
    "name offered_requests offered_tokens accepted_requests accepted_tokens served_requests served_tokens good_requests "
    "good_tokens refused_requests ttft_p50_s ttft_p90_s ttft_p95_s ttft_p99_s tpot_p50_s tpot_p90_s tpot_p95_s tpot_p99_s "
    "goodput_requests_ratio goodput_tokens_ratio accepted_within_slo_ratio served_within_slo_ratio".split()
)
REPORT = ROW | set(
    "endings refusals attempts ttft_p99_quiet_s ttft_over_target_p99_quiet_ratio served_share_by_size_quartile good_share_by_size_quartile recovery_s "
    "disturbances limit_variation_ratio per_class per_tenant".split()
)
TIMELINE = set(
    "row_s at_s for_s limit used in_flight queued engine_running engine_waiting kv_ratio ttft_p90_s tpot_p90_s offered good "
    "refused".split()
)


def test_keys_are_those_that_programs_rely_on() -> None:
    """Renaming one breaks whoever reads it: then FORMAT goes up, and this test with it."""
    told = json.loads(json.dumps(document([run()], {"workload": "chat"}), allow_nan=False))
    assert told.keys() == {"format", "about", "runs"}
    assert (told["format"], FORMAT, told["about"]) == (1, 1, {"workload": "chat"})
    (one,) = told["runs"]
    assert one.keys() == {"policy", "load", "seed", "report", "timeline"}
    assert one["report"].keys() == REPORT
    assert one["report"]["per_class"][0].keys() == ROW
    assert one["timeline"].keys() == TIMELINE


def test_figures_are_exact_there() -> None:
    """Rounding is for people."""
    shown = run()
    (one,) = document([shown])["runs"]
    assert one["report"]["goodput_requests_ratio"] == 630 / 801
    assert sum(one["timeline"]["good"]) == shown.report.good_requests + 2 * 90


def test_runs_that_nobody_watched_have_no_time_line() -> None:
    """Absent, not empty."""
    assert "timeline" not in document([run(watched=False)])["runs"][0]
