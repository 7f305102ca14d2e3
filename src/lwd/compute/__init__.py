"""Devices, seeded orders and streaming moments: small numerical tools without a home in one step."""
