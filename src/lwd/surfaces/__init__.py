"""Loss surfaces and the best schedules on them: tables, interpolation, integrals, solvers. No training."""
