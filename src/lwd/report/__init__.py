"""Pictures of schedules and samples."""
