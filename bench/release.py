#!/usr/bin/env python3
"""Makes a release: builds it twice in different folders, refuses if a byte differs, and writes to OUT

    hearth-VERSION.tar.gz               the sources of the commit
    hearth-VERSION-linux-ARCH.tar.gz    what make install installs, stripped
    hearth-VERSION-linux-ARCH.cdx.json  what the program is linked with (SBOM, CycloneDX 1.5)
    SHA256SUMS                          of those

then tags the commit vVERSION, signed where git has a key (user.signingkey). Nothing is uploaded.

    bench/release.py VERSION OUT [--no-tag] [--installed-by BUILD]

VERSION is that of CMakeLists.txt and of a heading in CHANGELOG.md; no file is changed or untracked. --installed-by takes
what a build folder installs instead of building (tests). Who repeats it with the same packages gets the same bytes.
Python 3, standard library only; needs git, cmake, ninja, binutils."""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def fail(text):
    sys.exit(f"release.py: {text}")


def output_of(*command, cwd=SOURCE):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout.strip()


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


def check_source(version, tags):
    """What is built is a commit that says to be this version; one that is to be tagged was not before."""
    if output_of("git", "status", "--porcelain"):
        fail("files are changed or untracked; commit them, or remove them")
    known = re.search(r"^project\(hearth VERSION (\S+)", read("CMakeLists.txt"), re.M)[1]
    if known != version:
        fail(f"CMakeLists.txt has version {known}, not {version}")
    if not re.search(rf"^## \[{re.escape(version)}\]", read("CHANGELOG.md"), re.M):
        fail(f"CHANGELOG.md has no heading '## [{version}]': name what is under [Unreleased] so")
    if tags and output_of("git", "tag", "--list", f"v{version}"):
        fail(f"there is a tag v{version} already")


# ---- archives --------------------------------------------------------------------------------------------------------


def write_gzip(path, data):
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=f, mtime=0) as z:
        z.write(data)


def source_archive(version):
    return subprocess.run(["git", "archive", "--format=tar", f"--prefix=hearth-{version}/", "HEAD"], check=True,
                          stdout=subprocess.PIPE, cwd=SOURCE).stdout


def tree_archive(root, prefix, time):
    """A tar of a folder, in which nothing depends on who made it, when and where."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                info = tar.gettarinfo(path, os.path.join(prefix, os.path.relpath(path, root)))
                info.uid = info.gid = 0
                info.uname = info.gname = "root"
                info.mtime = time
                info.mode = 0o755 if info.mode & 0o100 else 0o644
                if info.isreg():
                    with open(path, "rb") as f:
                        tar.addfile(info, f)
                else:
                    tar.addfile(info)
    return out.getvalue()


# ---- builds ----------------------------------------------------------------------------------------------------------


def install(build, root):
    subprocess.run(["cmake", "--install", build, "--strip", "--prefix", "/usr/local"], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "DESTDIR": root})
    return os.path.join(root, "usr", "local")


def build_in(folder, version, sources, time):
    """Builds the sources below a folder, and returns the build folder."""
    os.makedirs(folder)
    with tarfile.open(fileobj=io.BytesIO(sources)) as tar:
        tar.extractall(folder)
    source = os.path.join(folder, f"hearth-{version}")
    build = os.path.join(source, "build")
    flags = f"{os.environ.get('CFLAGS', '')} -ffile-prefix-map={source}=hearth".strip()
    env = {**os.environ, "CFLAGS": flags, "SOURCE_DATE_EPOCH": str(time), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    for command in (["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DHEARTH_TESTS=OFF",
                     "-DHEARTH_BENCH=OFF", "-DHEARTH_STATIC_DEPS=ON", "--log-level=WARNING"],
                    ["cmake", "--build", build, "--target", "hearth_installed", "-j", os.environ.get("JOBS", str(os.cpu_count()))]):
        subprocess.run(command, check=True, env=env, stdout=sys.stderr)
    return build


def differing(a, b):
    """Names of files that are not the same in two archives."""
    def digests(data):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return {m.name: (m.mode, m.linkname, hashlib.sha256(tar.extractfile(m).read()).hexdigest() if m.isreg() else "")
                    for m in tar}
    x, y = digests(a), digests(b)
    return sorted(name for name in x.keys() | y.keys() if x.get(name) != y.get(name))


# ---- what is linked --------------------------------------------------------------------------------------------------


def package_of(path):
    """(name, version) of the system's package that has a file, where the system can tell."""
    for name in {path, os.path.realpath(path)}:
        found = subprocess.run(["sh", "-c", 'dpkg-query -S "$1" 2>/dev/null', "sh", name], stdout=subprocess.PIPE, text=True)
        if found.returncode == 0:
            package = found.stdout.split(": ")[0].split(", ")[0]
            return package.split(":")[0], output_of("dpkg-query", "-W", "-f", "${Version}", package)
    return None


def component(name, version, linked, package=None):
    c = {"type": "library", "bom-ref": name, "name": name, "properties": [{"name": "hearth:linked", "value": linked}]}
    if version:
        c["version"] = version
    if package:
        c["properties"].append({"name": "hearth:package", "value": " ".join(package)})
    if linked == "at run time, if it is there":
        c["scope"] = "optional"
    return c


def bill_of(program, build, version, time):
    """The program's libraries: those that the loader finds for it, and those that the build put into it."""
    needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", output_of("readelf", "-d", program))
    paths = dict(re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", program), re.M))
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as f:
        cache = f.read()
    found = {m[2]: m[1] for m in re.finditer(r"^HEARTH_\w+_LIBRARY_VERSION:INTERNAL=(\S+)\n(?:.*\n)*?HEARTH_\w+_LIBRARY_(lib\S+)_VERSION:",
                                             cache, re.M)}
    components = [component("xxHash", xxhash_version(cache), "compiled in")]
    for soname in needed:
        name, package = soname.split(".so")[0], package_of(paths.get(soname, soname))
        components.append(component(soname, found.pop(name, package and package[1]), "shared", package))
    components += [component(name, v, "static") for name, v in found.items()]
    components.append(component("libvulkan.so.1", None, "at run time, if it is there"))
    components.sort(key=lambda c: c["name"])
    compiler = output_of(re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", cache, re.M)[1], "--version").splitlines()[0]
    with open(program, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    stamp = output_of("date", "-u", "-d", f"@{time}", "+%Y-%m-%dT%H:%M:%SZ")
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
            "metadata": {"timestamp": stamp,
                         "component": {"type": "application", "bom-ref": "hearth", "name": "hearth", "version": version,
                                       "licenses": [{"license": {"id": "Apache-2.0"}}],
                                       "hashes": [{"alg": "SHA-256", "content": digest}],
                                       "properties": [{"name": "hearth:compiler", "value": compiler}]}},
            "components": components,
            "dependencies": [{"ref": "hearth", "dependsOn": [c["bom-ref"] for c in components]}]}


def xxhash_version(cache):
    folder = re.search(r"^HEARTH_XXHASH_DIR:\w+=(.+)$", cache, re.M)
    header = os.path.join(folder[1], "xxhash.h") if folder else ""
    if not os.path.exists(header):
        return None
    with open(header, encoding="utf-8") as f:
        text = f.read()
    return ".".join(re.search(rf"#define XXH_VERSION_{part}\s+(\d+)", text)[1] for part in ("MAJOR", "MINOR", "RELEASE"))


# ---- the release -----------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(usage="release.py VERSION OUT [--no-tag] [--installed-by BUILD]")
    parser.add_argument("version")
    parser.add_argument("out")
    parser.add_argument("--no-tag", action="store_true")
    parser.add_argument("--installed-by")
    a = parser.parse_args()
    check_source(a.version, not a.no_tag)
    time = int(output_of("git", "log", "-1", "--format=%ct"))
    sources = source_archive(a.version)
    name = f"hearth-{a.version}-linux-{platform.machine()}"
    os.makedirs(a.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        # Names of different length, so that a path in a file moves what is behind it.
        builds = [a.installed_by or build_in(os.path.join(work, folder), a.version, sources, time)
                  for folder in ("a", os.path.join("another", "folder"))]
        trees = [install(build, os.path.join(work, f"installed{i}")) for i, build in enumerate(builds)]
        archives = [tree_archive(tree, name, time) for tree in trees]
        if archives[0] != archives[1]:
            fail("two builds differ: " + ", ".join(differing(*archives)))
        bill = bill_of(os.path.join(trees[0], "bin", "hearth"), builds[0], a.version, time)
    files = {f"hearth-{a.version}.tar.gz": sources, f"{name}.tar.gz": archives[0],
             f"{name}.cdx.json": json.dumps(bill, indent=1).encode() + b"\n"}
    sums = []
    for file, data in sorted(files.items()):
        path = os.path.join(a.out, file)
        if file.endswith(".gz"):
            write_gzip(path, data)
        else:
            with open(path, "wb") as f:
                f.write(data)
        with open(path, "rb") as f:
            sums.append(f"{hashlib.sha256(f.read()).hexdigest()}  {file}\n")
    with open(os.path.join(a.out, "SHA256SUMS"), "w", encoding="ascii") as f:
        f.writelines(sums)
    if not a.no_tag:
        key = subprocess.run(["git", "config", "user.signingkey"], stdout=subprocess.PIPE, cwd=SOURCE).stdout.strip()
        output_of("git", "tag", "-s" if key else "-a", f"v{a.version}", "-m", f"Hearth {a.version}")
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
