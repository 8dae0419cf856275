"""The workload plan and the job, as a framework's processes look them up. Standard library only."""

import hashlib
import json
import os


def prompt_hash(ids):
    """First 16 hex digits of sha256 over the comma-joined token ids (a list of int): the plan's name for a prompt."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


class Plan:
    """Rows in visiting order; see docs/records.md."""

    def __init__(self, path):
        with open(path) as file:
            content = json.load(file)
        self.rows = content["rows"]
        self.group_size = content["group_size"]
        self.by_step_and_hash = {(row["step"], row["prompt_hash"]): row for row in self.rows}

    def response_tokens(self, row, sample):
        return self.rows[row]["response_tokens"][sample]

    def reward(self, row, sample):
        return self.rows[row]["rewards"][sample]


class Job:
    """What the adapter wrote for this run (its `launch`), and the samples that this process generates now."""

    def __init__(self):
        with open(os.environ["RLMBENCH_JOB"]) as file:
            self.__dict__.update(json.load(file))
        self.plan = Plan(self.plan)
        self.samples = []  # (row, sample) of each completion in the batch that this rank generates now

    @property
    def lengths(self):
        return [self.plan.response_tokens(row, sample) for row, sample in self.samples]


_job = None


def job():
    """This process's job, read once."""
    global _job
    if _job is None:
        _job = Job()
    return _job
