"""Where tickets wait: bounded, by class, first come first served within one."""
