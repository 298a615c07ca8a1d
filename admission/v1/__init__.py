"""Generated from proto/admission/v1. Do not edit: `make proto`."""
