"""Ours against others, side by side in one run."""
