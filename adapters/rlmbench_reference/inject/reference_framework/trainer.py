"""The loop, in as many ranks as there are; rank 0 drives it and talks to all others."""

import threading

from reference_framework.peers import Parent


class Optimizer:
    def __init__(self, lr):
        self.lr, self.weight = lr, 0.0

    def step(self, gradient):
        self.weight -= self.lr * gradient


class Trainer:
    """`batches` hold each step's samples: prompt, extra, length. `reward` gives the reward of a sample's `extra`.

    Each rank generates and scores its part of the samples, and then has all of them, as after a gathering.
    """

    def __init__(self, script, config, batches, reward, peers=(), rollouts=()):
        self.script, self.config, self.batches, self.reward = script, config, batches, reward
        self.peers, self.rollouts = peers, rollouts
        self.rank, self.ranks = script.rank, script.processes
        self.parent = Parent() if self.rank else None
        self.optimizer, self.critic = Optimizer(config["lr"]), Optimizer(config["lr"])
        self.version = self.generated_by = 0
        self.waits_for_rollouts = script.schedule["rollouts"] > 0

    def fit(self):
        for step in range(1, len(self.batches) + 1):
            self.script.step = step
            self.step(step)

    def close(self):
        """Every process that was started ends, and ends well."""
        with self.script.noted("end"):
            for peer in (*self.peers, *self.rollouts):
                peer.end()

    def step(self, step):
        began_ns = self.script.at_ns
        batch = self.next_batch(step)
        own = shard(batch, self.rank, self.ranks)
        if self.waits_for_rollouts:
            self.wait_for_batch(step, batch)
            self.score(own)
        elif self.script.schedule["overlapped"]:
            self.generate_and_score(own)
        else:
            self.generate(own)
            self.score(own)
        self.gather(batch)
        if self.script.has("reference_logprob"):
            self.reference_log_probs(own)
        if self.script.has("old_logprob"):
            self.old_log_probs(own)
        if self.script.has("values"):
            self.values(own)
        self.advantages(batch)
        share = 1 / (self.config["epochs"] * len(self.mini_batches(batch)))
        for mini_batch in self.mini_batches(batch) * self.config["epochs"]:
            if self.script.has("critic_update"):
                self.update_critic(mini_batch, share)
            self.update(mini_batch, share)
        if self.ranks > 1:
            self.barrier(step)
        self.sync_weights(step)
        self.log({"step_seconds": (self.script.at_ns - began_ns) / 1e9, "staleness": step - 1 - self.generated_by,
                  "mean_reward": sum(sample["reward"] for sample in batch) / len(batch)})  # fmt: skip

    # -- samples

    def next_batch(self, step):
        self.script.act("data")
        for rollout in self.rollouts:
            rollout.send(asked=min(step + self.script.schedule["max_staleness"], len(self.batches)), at_ns=self.script.at_ns)
        return self.batches[step - 1]

    def generate(self, samples, share=1.0):
        self.script.act("generation", share=share, lengths=[sample["length"] for sample in samples], version=self.version)
        for sample in samples:
            sample["response"] = [7] * sample["length"]
        self.generated_by = self.version

    def wait_for_batch(self, step, batch):
        with self.script.noted("generation", awaits=True):
            if self.rank:
                arrived = self.parent.receive()
            else:
                parts = [rollout.receive() for rollout in self.rollouts]
                arrived = {"lengths": [part["lengths"] for part in parts], "at_ns": max(part["at_ns"] for part in parts),
                           "version": min(part["version"] for part in parts)}  # fmt: skip
                for peer in self.peers:
                    peer.send(**arrived)
            self.script.meet(arrived["at_ns"])
        self.generated_by = arrived["version"]
        for rank, lengths in enumerate(arrived["lengths"]):
            for sample, length in zip(shard(batch, rank, len(arrived["lengths"])), lengths):
                sample["response"] = [7] * length

    def generate_and_score(self, batch):
        """Each half is scored in a thread of its own, beside the generation of the other half."""
        scorer, scoring, middle = self.script.beside(), None, len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            self.generate(half, 0.5)
            if scoring:
                scoring.join()
            scorer.meet(self.script.at_ns)
            scoring = threading.Thread(target=self.score_half, args=(half, scorer))
            scoring.start()
        with self.script.noted("join"):
            scoring.join()
        self.script.meet(scorer.at_ns)

    def score_half(self, samples, script):
        with script.noted("thread"):
            self.score(samples, 0.5, script)

    def score(self, samples, share=1.0, script=None):
        (script or self.script).act("reward", share=share)  # in its own thread, by its own time
        for sample in samples:
            sample["reward"] = self.reward(sample["extra"])

    def gather(self, batch):
        """What the other ranks generated and scored."""
        for sample in batch:
            sample.setdefault("response", [7] * sample["length"])
            if "reward" not in sample:
                sample["reward"] = self.reward(sample["extra"])

    def reference_log_probs(self, batch):
        self.script.act("reference_logprob")

    def old_log_probs(self, batch):
        self.script.act("old_logprob")

    def values(self, batch):
        self.script.act("values")

    def advantages(self, batch):
        self.script.act("advantage")
        groups = {}
        for sample in batch:
            groups.setdefault(sample["extra"]["row"], []).append(sample["reward"])
        for sample in batch:
            rewards = groups[sample["extra"]["row"]]
            sample["advantage"] = sample["reward"] - sum(rewards) / len(rewards)

    # -- training

    def mini_batches(self, batch):
        size = self.config["mini_batch"]
        return [batch[start : start + size] for start in range(0, len(batch), size)]

    def update(self, mini_batch, share):
        """Forward and backward of each micro-batch of this rank's part, then the optimizer: 4, 5 and 1 tenths of the script's time."""
        own, size = shard(mini_batch, self.rank, self.ranks), self.config["micro_batch"]
        micro_batches = [own[start : start + size] for start in range(0, len(own), size)]
        gradient = 0.0
        with self.script.noted("actor_update"):
            for micro_batch in micro_batches:
                gradient += self.loss(micro_batch, 0.4 * share / len(micro_batches))
                self.backward(0.5 * share / len(micro_batches))
            self.step_optimizer(self.optimizer, gradient, 0.1 * share)

    def loss(self, samples, share):
        self.script.act("actor_update", "forward", share)
        return 1e-6 - sum(sample["advantage"] * len(sample["response"]) for sample in samples)

    def backward(self, share):
        self.script.act("actor_update", "backward", share)

    def step_optimizer(self, optimizer, gradient, share):
        self.script.act("actor_update", "optimizer", share)
        optimizer.step(gradient)

    def update_critic(self, mini_batch, share):
        self.script.act("critic_update", share=share)
        self.critic.step(1.0)

    def barrier(self, step):
        """Nobody goes on before the slowest rank is here."""
        with self.script.noted("wait"):
            if self.rank:
                self.parent.send(at_ns=self.script.at_ns)
                self.script.meet(self.parent.receive()["at_ns"])
                return
            for peer in self.peers:
                self.script.meet(peer.receive()["at_ns"])
            for peer in self.peers:
                peer.send(at_ns=self.script.at_ns)

    def sync_weights(self, step):
        self.script.act("weight_sync")
        self.version = step
        for rollout in self.rollouts:
            rollout.send(published=step)

    def log(self, figures):
        self.script.act("bookkeeping")
        if self.rank == 0:
            print(figures, flush=True)


def shard(samples, rank, ranks):
    """The part of `samples` that one of several ranks has: consecutive ones."""
    return samples[rank * len(samples) // ranks : (rank + 1) * len(samples) // ranks]
