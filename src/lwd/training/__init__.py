"""Stage II, and the training loop of both stages: configuration, steps, checkpoints, logs."""
