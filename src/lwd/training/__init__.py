"""Stage II, and the loop that both stages share: configuration, steps, checkpoints, logs."""
