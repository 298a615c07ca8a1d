"""Fits the engine model's step cost to measurements of a real server, and says how well it fits."""
