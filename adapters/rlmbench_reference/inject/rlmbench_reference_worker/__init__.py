"""What runs inside the simulated framework's processes. Standard library only at import."""
