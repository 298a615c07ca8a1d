"""Scenarios as data: an engine, a world, a load, and the bands within which admission must stay."""

from __future__ import annotations

from admission.simulation.scenarios.loading import families, load_family, scenario, scenarios
from admission.simulation.scenarios.running import run_scenario
from admission.simulation.scenarios.scenario import Scenario

__all__ = ["Scenario", "families", "load_family", "run_scenario", "scenario", "scenarios"]
