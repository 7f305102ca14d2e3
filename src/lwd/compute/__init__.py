"""Devices, seeded orders and streaming moments: numerical tools that several packages share."""
