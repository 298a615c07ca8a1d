"""The engine under simulated or real time: model, calibrations, stand-in server, open-loop load, traces."""
