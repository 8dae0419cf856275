"""The made-up framework: random tokens, and one number that moves. It trains nothing.

A real framework comes from the environment's lock files and is never edited; this one lies here so that the example can run.
"""

import asyncio
import random


class Optimizer:
    def __init__(self, lr):
        self.lr, self.weight = lr, 0.0

    def step(self, gradient):
        self.weight -= self.lr * gradient


class Trainer:
    def __init__(self, config, rows, reward, max_tokens):
        self.config, self.rows, self.reward, self.max_tokens = config, rows, reward, max_tokens
        self.optimizer, self.random = Optimizer(config["lr"]), random.Random(config["seed"])

    def fit(self):
        size = self.config["mini_batch"]
        for step in range(self.config["steps"]):
            samples = self.next_batch(step)
            self.generate(samples)
            self.score(samples)
            mean = sum(sample["reward"] for sample in samples) / len(samples)
            for sample in samples:
                sample["advantage"] = sample["reward"] - mean
            for start in range(0, len(samples), size):
                self.update(samples[start : start + size])
            self.log({"mean_reward": mean, "weight": self.optimizer.weight})

    def next_batch(self, step):
        count = self.config["prompts_per_step"]
        rows, copies = self.rows[step * count : (step + 1) * count], range(self.config["samples_per_prompt"])
        return [{"prompt": row["prompt"], "extra": {**row["extra"], "sample": copy}} for row in rows for copy in copies]

    def generate(self, samples):
        for sample in samples:
            sample["response"] = [self.random.randrange(100) for _ in range(self.max_tokens(sample["extra"]))]

    def score(self, samples):
        async def all_of_them():
            await asyncio.gather(*map(self.score_one, samples))

        asyncio.run(all_of_them())

    async def score_one(self, sample):
        sample["reward"] = self.reward(sample["extra"])

    def update(self, samples):
        size = self.config["micro_batch"]
        self.optimizer.step(sum(self.loss(samples[start : start + size]) for start in range(0, len(samples), size)))

    def loss(self, samples):
        return -sum(sample["advantage"] * len(sample["response"]) for sample in samples)

    def log(self, figures):
        print(figures)
