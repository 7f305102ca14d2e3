"""Figures, tables and the HTML report: schedules, runs, surfaces, samples, evaluations."""
