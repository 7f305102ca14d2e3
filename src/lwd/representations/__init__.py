"""Where latents come from and go to: the texture autoencoder and per-channel statistics."""
