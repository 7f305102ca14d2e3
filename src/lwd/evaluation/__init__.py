"""Evaluating samples: feature networks, metrics of features, evaluations of image sets."""
