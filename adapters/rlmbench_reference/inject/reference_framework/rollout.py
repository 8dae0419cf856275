"""A process that only generates: whichever batch was asked for, with the newest weights that were published."""

import threading

from reference_framework.peers import Parent


class Rollout:
    def __init__(self, script, batches):
        self.script, self.batches, self.parent = script, batches, Parent()
        self.asked, self.asked_at_ns = 0, {}
        self.published, self.loaded = 0, 0
        self.over, self.news = False, threading.Condition()

    def serve(self):
        self.parent.send(ready=True)
        self.script.origin_ns = self.parent.receive()["origin_ns"]
        self.parent.follow(self.take)
        for step, batch in enumerate(self.batches, start=1):
            if not self.wait_for_request(step):
                return
            self.script.step = step
            if self.published > self.loaded:
                self.load_weights(self.published)
            self.generate(step, batch)
            lengths = [len(sample["response"]) for sample in batch]
            self.parent.send(step=step, at_ns=self.script.at_ns, version=self.loaded, lengths=lengths)
        with self.news:
            self.news.wait_for(lambda: self.over)

    def take(self, message):
        """What the trainer says: how far it wants samples, and which version of the weights is out. None: it is gone."""
        with self.news:
            if message is None:
                self.over = True
            elif "published" in message:
                self.published = message["published"]
            else:
                self.asked_at_ns |= dict.fromkeys(range(self.asked + 1, message["asked"] + 1), message["at_ns"])
                self.asked = message["asked"]
            self.news.notify()

    def wait_for_request(self, step):
        with self.script.noted("request"), self.news:
            self.news.wait_for(lambda: self.over or self.asked >= step)
        if self.asked >= step:
            self.script.meet(self.asked_at_ns[step])
            return True
        return False

    def load_weights(self, version):
        self.script.act("load")
        self.loaded = version

    def generate(self, step, batch):
        self.script.act("generation", lengths=[sample["length"] for sample in batch], version=self.loaded)
        for sample in batch:
            sample["response"] = [7] * sample["length"]
