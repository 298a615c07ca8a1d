"""What the dashboard reads about the past."""
