"""The demo: from the embedded images to a report, in minutes on a laptop."""
