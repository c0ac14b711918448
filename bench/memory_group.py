"""A control group of Linux that limits the memory of programs and tells their peak: version 1 or 2, whichever the
system has. Making one needs root, or a delegated group; without, programs run as they are, and a line says so."""
import os
import subprocess
import sys
import time


class MemoryGroup:
    """with MemoryGroup(limit_bytes or None) as group: group.run(command)"""

    def __init__(self, limit=None):
        v1 = "/sys/fs/cgroup/memory"
        self.is_v1 = os.path.isdir(v1)
        self.path = os.path.join(v1 if self.is_v1 else "/sys/fs/cgroup", f"hearth-bench-{os.getpid()}")
        self.limit = limit

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def read(self, name):
        with open(os.path.join(self.path, name), encoding="ascii") as f:
            return f.read()

    def __enter__(self):
        try:
            os.mkdir(self.path)
        except OSError as error:
            print(f"no control group: the limit is the program's own ({error.strerror})", file=sys.stderr)
            self.path = None
            return self
        if self.limit:
            self.write("memory.limit_in_bytes" if self.is_v1 else "memory.max", self.limit)
            if not self.is_v1:
                self.write("memory.swap.max", 0)
        return self

    def __exit__(self, *_):
        if not self.path:
            return
        if self.is_v1:
            self.write("memory.force_empty", 0)
        for _ in range(50):
            try:
                os.rmdir(self.path)
                return
            except OSError:  # a process is still ending
                time.sleep(0.1)

    def run(self, command, timeout=None, **more):
        """As subprocess.run, inside the group; None: it took too long."""
        def join():
            with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write("0")
        try:
            return subprocess.run([str(c) for c in command], preexec_fn=join if self.path else None, timeout=timeout,
                                  **more)
        except subprocess.TimeoutExpired:
            return None

    def peak(self):
        """Bytes; 0 without a group."""
        if not self.path:
            return 0
        return int(self.read("memory.max_usage_in_bytes" if self.is_v1 else "memory.peak"))


def drop_cached(path):
    """Takes a file out of the page cache: the first program that reads it pays for what it keeps there."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def keep_cached(path):
    """Reads a file into the page cache, from which a simulated disk takes its bytes."""
    with open(path, "rb", buffering=0) as f:
        while f.read(16 << 20):
            pass
