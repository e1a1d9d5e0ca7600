"""A workload for tests: `workload.py KIND LOG`. It writes down by itself when it was told and what it did."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from types import FrameType

KIND, LOG = sys.argv[1:3]
EXIT_WRONGLY = 7


def write(word: str) -> None:
    line = f"{word} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f} {os.getpid()}\n"
    handle = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, line.encode())
    os.close(handle)


def told(number: int, frame: FrameType | None) -> None:
    write(signal.Signals(number).name)
    if KIND in ("checkpoints", "forks", "stubborn child"):
        time.sleep(0.3)
        write("checkpoint")
        os._exit(0)
    if KIND == "says how it ends":
        say_exit()
        os._exit(EXIT_WRONGLY)
    if KIND == "exits wrongly":
        os._exit(EXIT_WRONGLY)


def say_exit() -> None:
    """As a wrapper does: it is still of the work, and tells with what the work ends."""
    path = os.path.join(os.path.dirname(LOG), "..", "run", "agent.sock")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(b'{"op":"ended","exitCode":%d}\n' % EXIT_WRONGLY)
        line.recv(4096)


def main() -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    if KIND == "ignores":
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if KIND == "knows only TERM":
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    if KIND in ("forks", "stubborn child") and os.fork() == 0:
        if KIND == "stubborn child":
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        write("child")
        while True:
            time.sleep(60)
    write("ready")
    while True:
        time.sleep(60)


main()
