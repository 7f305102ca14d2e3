"""Latents on disk: shards in SFD's format, their manifest, and the reader that training uses."""
