"""What runs inside the made-up trainer's process. Standard library only at import."""
