"""Makes a wheel that holds the program: `wheel.py TREE VERSION GLIBC OUT`, with nothing but the standard library.

TREE is a tree as below /usr. Its bin/ becomes the wheel's scripts, its share/ the wheel's data; the wheel fits every
Python 3 on Linux with that version of the C library or a later one.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

METADATA = """\
Metadata-Version: 2.1
Name: overspill
Version: {version}
Summary: Run programs in less RAM than they need
License: MIT OR Apache-2.0
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.7

Holds the program `overspill`; there is no module to import.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: overspill
Root-Is-Purelib: false
Tag: {tag}
"""
# A time that zip can hold: equal input gives equal bytes.
TIME = (1980, 1, 1, 0, 0, 0)


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


class Wheel:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, content, mode=0o644):
        info = zipfile.ZipInfo(name, TIME)
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, content)
        self.record.append(f"{name},{digest(content)},{len(content)}")

    def finish(self, info):
        lines = self.record + [f"{info}/RECORD,,"]
        self.zip.writestr(zipfile.ZipInfo(f"{info}/RECORD", TIME), "\n".join(lines) + "\n")
        self.zip.close()


def main(tree, version, glibc, out):
    tree = pathlib.Path(tree)
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    path = pathlib.Path(out) / f"overspill-{version}-{tag}.whl"
    wheel = Wheel(path)
    data, info = f"overspill-{version}.data", f"overspill-{version}.dist-info"
    wheel.add(f"{data}/scripts/overspill", (tree / "bin/overspill").read_bytes(), 0o755)
    for file in sorted(file for file in (tree / "share").rglob("*") if file.is_file()):
        wheel.add(f"{data}/data/{file.relative_to(tree)}", file.read_bytes())
    wheel.add(f"{info}/METADATA", METADATA.format(version=version).encode())
    wheel.add(f"{info}/WHEEL", WHEEL.format(tag=tag).encode())
    wheel.finish(info)


if __name__ == "__main__":
    main(*sys.argv[1:])
