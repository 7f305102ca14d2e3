"""Files, locks, tensors, jobs and downloads: everything that touches the disk or the network."""
