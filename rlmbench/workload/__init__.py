"""The inputs of a run: model, prompts, replayed lengths and rewards, and the plan that holds them together."""
