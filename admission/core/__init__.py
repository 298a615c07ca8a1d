"""The pure core: no clock, no I/O, no lock, no log, no randomness of its own."""
