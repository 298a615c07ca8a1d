"""The commands of `tidegate`, one module each; heavy imports stay inside the functions."""
