"""What people and programs get to see of simulated runs: tables, one JSON document, a plot."""
