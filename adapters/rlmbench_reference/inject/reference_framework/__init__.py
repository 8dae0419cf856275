"""A simulated framework: real processes that sleep, burn, allocate and fail by a script. It has no model and trains nothing.

A real framework comes from the environment's lock files; this one lies here because it exists to test the measurement.
"""
