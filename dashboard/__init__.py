"""What an operator sees: pages over the sidecar's MonitorService."""
