"""From two sets of images to a table: one pass over each, features kept, metrics with their standard errors."""
