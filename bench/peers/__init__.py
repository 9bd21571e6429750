"""The peers: one file each, run by the Python of the benchmark's own environment."""
