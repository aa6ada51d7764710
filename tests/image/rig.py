# SPDX-License-Identifier: Apache-2.0
"""Images made by hand, a registry that serves them (or lies about them), and cove-image run on them as coved runs it."""

import array
import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import random
import socket
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path

BUILD = Path(os.environ.get("COVE_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROGRAM = BUILD / "cove-image"

OCI = "application/vnd.oci.image."
INDEX, MANIFEST, CONFIG = OCI + "index.v1+json", OCI + "manifest.v1+json", OCI + "config.v1+json"
LAYER = OCI + "layer.v1.tar"


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def entry(name, type=tarfile.REGTYPE, data=b"", **fields):
    """(TarInfo, bytes) with what tests care about set by name."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime = type, len(data), 1600000000
    info.mode = 0o755 if type == tarfile.DIRTYPE else 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def directory(name, **fields):
    return entry(name, tarfile.DIRTYPE, **fields)


def link(name, target, hard=False, **fields):
    return entry(name, tarfile.LNKTYPE if hard else tarfile.SYMTYPE, linkname=target, **fields)


def tar(*entries, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Image:
    """layers: tars, each plain bytes or (bytes, "gzip" | "zstd")."""

    def __init__(self, *layers, arch="amd64", config=None, diff_ids=None):
        self.blobs, descriptors, ids = {}, [], []
        for layer in layers:
            data, how = layer if isinstance(layer, tuple) else (layer, "")
            ids.append(sha(data))
            packed = gzip.compress(data, 1, mtime=0) if how == "gzip" else zstd(data) if how == "zstd" else data
            descriptors.append(self.add(packed, LAYER + ("+" + how if how else "")))
        self.config = {"architecture": arch, "os": "linux", "config": config or {}, "rootfs": {"type": "layers", "diff_ids": diff_ids or ids}}
        self.manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": self.add(json.dumps(self.config).encode(), CONFIG), "layers": descriptors}
        self.seal()

    def add(self, data, media_type):
        self.blobs[sha(data)] = data
        return {"mediaType": media_type, "digest": sha(data), "size": len(data)}

    def seal(self):
        """The manifest as it is now, after a test has changed it."""
        self.text = json.dumps(self.manifest).encode()
        self.descriptor = self.add(self.text, self.manifest.get("mediaType", MANIFEST))
        self.digest = sha(self.text)
        return self

    def layout(self, *others, names=(None,)):
        """An OCI layout as a tar."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
        for image, name in zip((self, *others), names):
            index["manifests"].append(image.descriptor | ({"annotations": {"org.opencontainers.image.ref.name": name}} if name else {}))
        files = [entry("oci-layout", data=b'{"imageLayoutVersion": "1.0.0"}'), entry("index.json", data=json.dumps(index).encode())]
        for image in (self, *others):
            files += [entry("blobs/sha256/" + digest[7:], data=data) for digest, data in image.blobs.items()]
        return tar(*files)

    def docker_archive(self):
        """As "docker save" writes it: layers plain, one of them twice by a link."""
        config = json.dumps(self.config).encode()
        names, files = [], []
        for i, layer in enumerate(self.manifest["layers"]):
            data = self.blobs[layer["digest"]]
            names.append(f"{i}/layer.tar")
            files.append(entry(names[-1], data=gzip.decompress(data) if layer["mediaType"].endswith("gzip") else data))
        listing = [{"Config": sha(config)[7:] + ".json", "RepoTags": ["test/image:latest"], "Layers": names}]
        return tar(*files, entry(sha(config)[7:] + ".json", data=config), entry("manifest.json", data=json.dumps(listing).encode()))


class Registry:
    """
    Serves images under any repository name. on: path suffix -> function(handler) that answers instead; requests: (path, headers) as they came.
    """

    def __init__(self, address="127.0.0.1"):
        self.content, self.on, self.requests = {}, {}, []
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                registry.requests.append((self.path, dict(self.headers)))
                for suffix, answer in list(registry.on.items()):
                    if self.path.split("?")[0].endswith(suffix):
                        if answer(self) is not False:
                            return
                found = registry.content.get(self.path.split("?")[0].split("/")[-1])
                if not found:
                    self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
                    return
                data, media_type = found
                start = int(self.headers["Range"][6:].split("-")[0]) if "Range" in self.headers else 0
                extra = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
                self.answer(206 if start else 200, data[start:], {"Content-Type": media_type, **extra})

            def answer(self, status, body=b"", headers=None):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                if "Content-Length" not in (headers or {}):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server((address, 0), Handler)
        self.host = f"{address}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def put(self, image, tag="latest"):
        for digest, data in image.blobs.items():
            self.content[digest] = (data, "application/octet-stream")
        kind = image.manifest.get("mediaType", MANIFEST)
        self.content[image.digest] = self.content[tag] = (image.text, kind)
        return f"{self.host}/test/image:{tag}"

    def put_index(self, images, tag="latest", **fields):
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [], **fields}
        for platform, image in images:
            self.put(image, "ignored")
            index["manifests"].append(image.descriptor | ({"platform": platform} if platform else {}))
        text = json.dumps(index).encode()
        self.content[tag] = self.content[sha(text)] = (text, INDEX)
        return f"{self.host}/test/image:{tag}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Result:
    def __init__(self, root, lines, code, stderr, raw):
        self.root, self.lines, self.code, self.stderr, self.raw = root, lines, code, stderr, raw
        last = lines[-1] if lines else {}
        self.ok = last if last.get("ok") else None
        self.error = last.get("error", {}).get("code")
        self.message = last.get("error", {}).get("message", "")
        self.warnings = [line["warning"] for line in lines if "warning" in line]

    def __repr__(self):
        return f"exit {self.code}: {self.lines[-3:]} {self.stderr}"


class Jobs:
    """Runs cove-image in directories below one that is removed at the end."""

    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix="test-image-", dir=BUILD))
        self.count = 0

    def close(self):
        subprocess.run(["rm", "-rf", self.top], check=False) # deeper than Python walks

    @contextlib.contextmanager
    def started(self, request, archive=None, options=()):
        """(process, our end of its socket, its directory)"""
        self.count += 1
        root = self.top / f"root-{self.count}"
        root.mkdir(mode=0o755)
        os.chmod(root, 0o755)
        ours, theirs = socket.socketpair()
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        base = 1500000000 + 65536 * random.randrange(8000)
        argv = [PROGRAM, "--root-fd", str(root_fd), "--job-fd", str(theirs.fileno()), "--uid", str(base + 70000), "--ids-base", str(base), *options]
        with subprocess.Popen(argv, pass_fds=(root_fd, theirs.fileno()), stderr=subprocess.PIPE, env={}) as process:
            theirs.close()
            os.close(root_fd)
            try:
                line = (request if isinstance(request, bytes) else json.dumps(request).encode()) + b"\n"
                extra = [] if archive is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [archive]))]
                ours.sendmsg([line], extra)
                yield process, ours, root
            finally:
                ours.close()
                if process.poll() is None:
                    process.kill()

    def run(self, request, archive=None, options=(), timeout=200):
        with self.started(request, archive, options) as (process, ours, root):
            ours.settimeout(timeout)
            raw = b""
            while part := ours.recv(65536):
                raw += part
            stderr = process.stderr.read().decode(errors="replace")
            code = process.wait(timeout)
        return Result(root, [json.loads(line) for line in raw.decode().splitlines()], code, stderr, raw)

    def archive(self, data, options=(), **request):
        """data: bytes, or the path of a file."""
        if isinstance(data, (bytes, bytearray)):
            with tempfile.TemporaryFile(dir=self.top) as file:
                file.write(data)
                file.flush()
                return self.run({"archive": True, **request}, file.fileno(), options)
        with open(data, "rb") as file:
            return self.run({"archive": True, **request}, file.fileno(), options)

    def pull(self, registry, image, options=(), **request):
        return self.run({"image": image, "insecure": [registry.host], **request}, None, options)


def tree(root):
    """path -> what a container would notice of it."""
    root, found, inodes = Path(root), {}, {}
    paths = [root] + [Path(d) / name for d, dirs, files in os.walk(root) for name in dirs + files]
    for path in sorted(paths):
        st, name = os.lstat(path), str(path.relative_to(root))
        kind = stat.S_IFMT(st.st_mode)
        content = os.readlink(path) if kind == stat.S_IFLNK else hashlib.sha256(path.read_bytes()).hexdigest() if kind == stat.S_IFREG else ""
        attributes = {} if kind == stat.S_IFLNK else {n: os.getxattr(path, n) for n in os.listxattr(path)}
        first = inodes.setdefault(st.st_ino, name)
        found[name] = (stat.filemode(st.st_mode), st.st_uid, st.st_gid, st.st_nlink if kind != stat.S_IFDIR else 0, first, content, attributes)
    return found


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
