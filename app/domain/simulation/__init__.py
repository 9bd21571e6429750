"""A policy against a load in virtual time, by the very functions that decide in production. Pure: no clock, no I/O."""
