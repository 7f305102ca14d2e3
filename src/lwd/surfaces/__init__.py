"""Loss surfaces and the best schedules on them: tabulated, smoothed, integrated, solved. No training happens here."""
