"""What happens to a measurement between its receiver and the admission loop."""
