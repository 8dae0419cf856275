"""What runs inside verl's processes: its driver, Ray workers and vLLM engines. Never imported by rlmbench itself."""
