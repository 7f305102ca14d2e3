"""Schedules: one clock per group, all driven by the global time tau."""
