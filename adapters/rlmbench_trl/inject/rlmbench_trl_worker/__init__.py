"""What runs inside TRL's processes: the training script, workload replay, patch points. Never imported by rlmbench itself."""
