"""gRPC services over the runtime; every foreign protocol is mapped here and nowhere else."""
