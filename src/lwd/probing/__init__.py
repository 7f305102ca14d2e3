"""Stage I: learn a schedule, by a joint probe, a sweep over lambda, or a surface probe."""
