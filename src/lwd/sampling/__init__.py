"""Sampling from a trained model: pipelines, step placement, sample sets, solver benchmarks."""
