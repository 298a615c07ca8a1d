"""One file per gate: a yes, not yet or no before the limit."""
