"""The client: asks the sidecar for permits from inside someone else's process, and never harms its host."""
