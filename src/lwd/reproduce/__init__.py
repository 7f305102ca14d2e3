"""The paper's tables and figures as resumable plans of jobs."""
