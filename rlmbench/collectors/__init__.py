"""Sampling of devices and host beside a run, in a process of its own (`python -m rlmbench.collectors`).

It is light on purpose: the standard library, and the vendor's binding where a device is to be sampled. Nothing here imports
pandas, pydantic or typer, and nothing but this package needs to be imported for it. What it writes is in docs/records.md.
"""
