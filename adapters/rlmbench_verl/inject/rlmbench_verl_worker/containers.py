"""What verl keeps in tensordict's containers, as plain Python."""


def plain(stack):
    """A list of Python objects from one of tensordict's non-tensor containers."""
    return stack.tolist() if hasattr(stack, "tolist") else [getattr(item, "data", item) for item in stack]


def rows_of_prompts(batch):
    """(uid, row of the plan) for each prompt of a batch; verl draws the uid anew each step."""
    return [(str(uid), int(info["row"])) for uid, info in zip(plain(batch["uid"]), plain(batch["extra_info"]))]
