"""Generated from proto/admission/wire. Do not edit: `make proto`."""
