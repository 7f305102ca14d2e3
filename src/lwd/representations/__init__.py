"""Encoders and decoders: texture autoencoders, semantic encoders and compressors, and how to fit them."""
