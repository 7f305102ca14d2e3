"""Latents on disk and in memory: encoding images into shards, reading batches, per-channel statistics."""
