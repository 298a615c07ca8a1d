"""One file per algorithm: what moves the limit."""
