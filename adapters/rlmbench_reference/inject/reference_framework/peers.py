"""The other processes: how the first one starts them, and what they tell each other, a JSON object a line."""

import json
import os
import signal
import subprocess
import sys
import threading


class Peer:
    """A process that this one has started. It writes to our pipe and reads from its standard input; errors go to the common log."""

    def __init__(self, module, role, rank):
        self.name = f"{role}-{rank}"
        env = {**os.environ, "REFERENCE_ROLE": role, "RANK": str(rank)}
        self.process = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)

    def send(self, **message):
        try:
            write(self.process.stdin, message)
        except BrokenPipeError:
            self._lost()

    def receive(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else self._lost()

    def end(self):
        """Wait for its end, which must be a good one."""
        self.process.stdin.close()
        if self.process.wait():
            self._lost()

    def _lost(self):
        """What launchers do: say which process ended, and end the same way."""
        code = self.process.wait()
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        print(f"{self.name} was {how}" if code < 0 else f"{self.name} {how}", file=sys.stderr, flush=True)
        sys.exit(128 - code if code < 0 else code or 1)


class Parent:
    """The process that started this one. What it sends is read as it comes."""

    def __init__(self):
        self.out = os.fdopen(os.dup(1), "w")  # standard output proper goes to the log, whoever prints
        os.dup2(2, 1)

    def send(self, **message):
        write(self.out, message)

    def receive(self):
        line = sys.stdin.readline()
        return json.loads(line) if line.endswith("\n") else sys.exit(1)

    def follow(self, take):
        """Hand each message to `take`, from a thread; ends the process with the parent."""

        def read():
            for line in sys.stdin:
                take(json.loads(line))
            take(None)

        threading.Thread(target=read, daemon=True).start()


def write(file, message):
    file.write(json.dumps(message) + "\n")
    file.flush()
