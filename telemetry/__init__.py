"""Measurements in, readings and samples out."""
