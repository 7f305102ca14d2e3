"""Training: the step, the loop around it, checkpoints that survive, and what is written down on the way."""
