"""The studio: a page in the browser on which a schedule is drawn, sampled, compared and taken away."""
