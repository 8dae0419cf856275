"""What runs inside OpenRLHF's processes: its launcher, Ray actors and vLLM engines. Never imported by rlmbench itself."""
