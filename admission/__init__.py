"""Adaptive admission control for LLM inference servers."""
