"""Same examples each run; a longer search is asked for with HYPOTHESIS_PROFILE=search."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
