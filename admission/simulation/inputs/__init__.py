"""Where simulated requests come from: recorded traces, synthetic mixes, and the journal of a real sidecar."""
