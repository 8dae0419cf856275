"""What a framework needs to run without a GPU. Nothing here is active on one."""
