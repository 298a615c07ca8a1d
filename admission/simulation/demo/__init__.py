"""The demo: the same overload without and with Tidegate, on this machine, with nothing left behind."""
