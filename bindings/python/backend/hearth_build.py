"""Builds the package for pip (PEP 517, PEP 660) with the standard library alone, so that `pip install ./bindings/python`
needs no network. The same files give the same bytes: SOURCE_DATE_EPOCH, or 1980, is the time of all of them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import tarfile
import time
import zipfile
from typing import Any, Optional

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = ("hearth/__init__.py", "hearth/py.typed")
SOURCES = (*PACKAGE, "README.md", "pyproject.toml", "backend/hearth_build.py")
EPOCH = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)  # zip files know no time before 1980
WHEEL = "Wheel-Version: 1.0\nGenerator: hearth_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _read(path: str) -> bytes:
    with open(os.path.join(ROOT, path), "rb") as f:
        return f.read()


VERSION = re.findall(r'^__version__ = "(.+)"$', _read("hearth/__init__.py").decode(), re.M)[0]
INFO = f"hearth-{VERSION}.dist-info"


def _metadata() -> bytes:
    return (f"Metadata-Version: 2.1\nName: hearth\nVersion: {VERSION}\n"
            "Summary: Runs large language models on the local machine, by libhearth\n"
            "Requires-Python: >=3.9\nClassifier: Operating System :: POSIX :: Linux\nClassifier: Typing :: Typed\n"
            "Description-Content-Type: text/markdown\n\n").encode() + _read("README.md")


def _write_wheel(folder: str, files: dict[str, bytes]) -> str:
    files = {**files, f"{INFO}/METADATA": _metadata(), f"{INFO}/WHEEL": WHEEL.encode()}
    rows = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
            for path, data in files.items()]
    files[f"{INFO}/RECORD"] = "".join([*rows, f"{INFO}/RECORD,,\n"]).encode()
    name = f"hearth-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(EPOCH)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, data)
    return name


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    return _write_wheel(wheel_directory, {path: _read(path) for path in PACKAGE})


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """A wheel that names this folder: changes count without another installation."""
    return _write_wheel(wheel_directory, {"hearth.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    base = f"hearth-{VERSION}"
    files = {**{path: _read(path) for path in SOURCES}, "PKG-INFO": _metadata()}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size, entry.mtime, entry.mode = len(data), EPOCH, 0o644
            tar.addfile(entry, io.BytesIO(data))
    with open(os.path.join(sdist_directory, f"{base}.tar.gz"), "wb") as f:
        f.write(gzip.compress(plain.getvalue(), mtime=EPOCH))
    return f"{base}.tar.gz"
