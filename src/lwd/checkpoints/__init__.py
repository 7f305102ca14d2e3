"""Trained models as directories, and published weights converted to and from them."""
