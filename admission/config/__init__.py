"""What a user may write, checked as a whole before anything starts."""
