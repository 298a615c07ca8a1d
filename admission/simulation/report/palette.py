"""The colours of a plot, by meaning: those of the dashboard, told apart by the colour-blind."""

from __future__ import annotations

USED = "#2f80ed"
REFUSED = "#e4572e"
LIMIT = "#7f8ba0"
MARK = "#b98000"
HIGH = "#bf408a"
INK = "#1b2430"
SOFT = "#5b6676"
GRID = "#dfe4ea"
SHADE = "#ffe9c4"
"""Behind a disturbance."""
UNJUDGED = "#dde3ea"
"""Behind what does not count."""
