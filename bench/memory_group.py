"""A control group of Linux that limits the memory of programs and tells their peak: version 1 or 2, whichever the
system has. Making one needs root, or a delegated group; without, programs run as they are, and a line says so."""
import os
import subprocess
import sys
import time

MIB = 1 << 20


def parse_size(text):
    """Bytes of 8G, 7.5g, 500M, 1T, 4096, as --ram takes them; ValueError of others, also of auto."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    unit = text[-1:].upper()
    try:
        size = int(float(text[:-1]) * (1 << units[unit])) if unit in units else int(text)
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise ValueError(f"'{text}': bytes are wanted: 4096, 500M, 7.5G; not auto")
    return size


def allowed_peak(budget):
    """Bytes that a group may have with --ram: 2 % and 16 MiB above it."""
    return budget * 1.02 + 16 * MIB


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
            try:
                self.set_limit()
            except OSError:
                os.rmdir(self.path)
                raise
        except OSError as error:
            print(f"no control group: the limit is the program's own ({error.strerror})", file=sys.stderr)
            self.path = None
        return self

    def set_limit(self):
        """Of memory, without swap space where the system counts it."""
        if not self.limit:
            return
        self.write("memory.limit_in_bytes" if self.is_v1 else "memory.max", self.limit)
        name, most = ("memory.memsw.limit_in_bytes", self.limit) if self.is_v1 else ("memory.swap.max", 0)
        if os.path.exists(os.path.join(self.path, name)):
            self.write(name, most)

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
        """Bytes; 0 without a group, or where the system (before Linux 5.19, version 2) does not tell it."""
        name = "memory.max_usage_in_bytes" if self.is_v1 else "memory.peak"
        if not self.path or not os.path.exists(os.path.join(self.path, name)):
            return 0
        return int(self.read(name))


def available_memory():
    """Bytes that the machine has for programs: MemAvailable."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))


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
