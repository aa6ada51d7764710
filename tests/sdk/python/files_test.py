# SPDX-License-Identifier: Apache-2.0
import hashlib
import io
import os
from datetime import datetime, timedelta, timezone

import httpx
import pytest
from conftest import inside, until
from e2b import FileNotFoundException, FilesystemEventType, FileType, InvalidArgumentException, SandboxException


def test_what_is_written_is_read_in_every_form(box):
    text = "one\ntwo é 😀\n"
    info = box.files.write("note.txt", text)
    assert (info.name, info.path, info.type) == ("note.txt", "/home/user/note.txt", FileType.FILE)
    assert box.files.read("note.txt") == box.files.read("~/note.txt") == box.files.read("/home/user/note.txt") == text
    assert bytes(box.files.read("note.txt", format="bytes")) == text.encode()
    with box.files.read("note.txt", format="stream") as stream:
        assert b"".join(stream) == text.encode()


def test_an_empty_file_is_empty_in_every_form(box):
    box.files.write("empty", "")
    assert box.files.read("empty") == box.files.read("empty", gzip=True) == ""
    assert box.files.read("empty", format="bytes") == b""
    assert b"".join(box.files.read("empty", format="stream")) == b""


@pytest.mark.parametrize("way", [{}, {"use_octet_stream": True}, {"gzip": True}], ids=["multipart", "octets", "gzip"])
def test_bytes_stay_as_they_are(box, way):
    data = bytes(range(256)) + os.urandom(300_000)
    box.files.write("data", data, **way)
    for gzip in (False, True):
        assert box.files.read("data", format="bytes", gzip=gzip) == data


def test_a_stream_of_64_mib_goes_in_and_out_whole(box):
    piece, whole = os.urandom(1 << 20), hashlib.sha256()

    def pieces():
        for _ in range(64):
            whole.update(piece)
            yield piece

    box.files.write("big", pieces())
    assert box.commands.run("sha256sum big").stdout.split()[0] == whole.hexdigest()
    back = hashlib.sha256()
    with box.files.read("big", format="stream") as stream:
        for chunk in stream:
            back.update(chunk)
    assert back.digest() == whole.digest()


def test_a_file_object_is_uploaded(box):
    box.files.write("from-object", io.BytesIO(b"of an object"))
    assert box.files.read("from-object") == "of an object"


def test_many_files_in_one_go(box):
    files = [{"path": f"/tmp/d{n}/f" if n % 2 else f"d{n}/f", "data": f"data {n}"} for n in range(20)]
    infos = box.files.write_files(files)
    assert [i.path for i in infos] == [f["path"] if f["path"].startswith("/") else f"/home/user/{f['path']}" for f in files]
    assert [box.files.read(f["path"]) for f in files] == [f["data"] for f in files]


def test_any_name_will_do(box):
    names = ["a b", "ü😀", 'quote"s', "'", "a%20b", "semi;colon", "back\\slash", "-rf", "#?&=+"]
    for name in names:
        box.files.write(f"names/{name}", name)
        assert box.files.read(f"names/{name}") == name
    assert sorted(e.name for e in box.files.list("names")) == sorted(names)


def test_a_missing_file_is_missing(box):
    with pytest.raises(FileNotFoundException, match="path '/home/user/none' does not exist"):
        box.files.read("none")
    for call in (box.files.get_info, box.files.list, lambda p: box.files.rename(p, "x"), lambda p: box.files.read(p, format="stream")):
        with pytest.raises(FileNotFoundException):
            call("none")
    assert box.files.exists("none") is False
    box.files.remove("none")


def test_a_directory_is_no_file_and_a_file_no_directory(box):
    box.files.make_dir("dir")
    box.files.write("file", "x")
    for call in (lambda: box.files.read("dir"), lambda: box.files.list("file"), lambda: box.files.make_dir("file")):
        with pytest.raises(InvalidArgumentException):
            call()


def test_what_is_known_about_a_file(box):
    box.files.write("file", "12345")
    box.commands.run("chmod 640 file; ln -s file link")
    file = box.files.get_info("file")
    assert (file.name, file.path, file.type, file.size) == ("file", "/home/user/file", FileType.FILE, 5)
    assert (file.mode, file.permissions, file.owner, file.group) == (0o640, "-rw-r-----", "user", "user")
    assert file.symlink_target is None
    assert abs(file.modified_time - datetime.now(timezone.utc)) < timedelta(minutes=1)
    link = box.files.get_info("link")
    assert (link.type, link.permissions, link.symlink_target) == (FileType.FILE, "Lrwxrwxrwx", "/home/user/file")


def test_directories_are_listed_as_deep_as_asked(box):
    box.commands.run("mkdir -p d/b/c d/a; touch d/.hidden d/z d/b/f")
    assert [e.name for e in box.files.list("d")] == [".hidden", "a", "b", "z"]
    assert [e.path for e in box.files.list("d", depth=2)] == [f"/home/user/d/{p}" for p in (".hidden", "a", "b", "b/c", "b/f", "z")]
    assert [e.type for e in box.files.list("d")] == [FileType.FILE, FileType.DIR, FileType.DIR, FileType.FILE]


def test_directories_and_names_change(box):
    assert box.files.make_dir("one/two") is True
    assert box.files.make_dir("one/two") is False
    box.files.write("one/file", "content")
    assert box.files.rename("one/file", "new/place").path == "/home/user/new/place"
    assert box.files.read("new/place") == "content"
    box.files.remove("one")
    assert box.files.exists("one/two") is False


def test_files_of_root_are_roots(box):
    assert box.files.write("mine", "x", user="root").path == "/root/mine"
    assert box.files.get_info("mine", user="root").owner == "root"


def test_metadata_stays_until_the_file_is_written_anew(box):
    metadata = {"author": "somebody", "kind": "plain text"}
    assert box.files.write("tagged", "x", metadata=metadata).metadata == metadata
    assert box.files.get_info("tagged").metadata == metadata
    assert box.files.write("tagged", "y").metadata is None
    assert box.files.get_info("tagged").metadata is None


def test_a_watch_collects_what_happens(box):
    box.files.make_dir("w/old")
    watch = box.files.watch_dir("w", recursive=True, include_entry=True)
    seen = []

    def has(*wanted):
        def look():
            seen.extend(watch.get_new_events())
            return set(wanted) <= {(e.type, e.name) for e in seen}
        return until(look)

    box.files.write("w/old/a", "1234")
    assert has((FilesystemEventType.CREATE, "old/a"), (FilesystemEventType.WRITE, "old/a")), seen
    box.files.make_dir("w/new")
    assert has((FilesystemEventType.CREATE, "new")), seen
    box.files.write("w/new/b", "x")
    assert has((FilesystemEventType.WRITE, "new/b")), seen
    box.files.rename("w/new/b", "w/new/c")
    box.files.remove("w/new/c")
    assert has((FilesystemEventType.RENAME, "new/b"), (FilesystemEventType.CREATE, "new/c"), (FilesystemEventType.REMOVE, "new/c")), seen
    written = [e for e in seen if (e.type, e.name) == (FilesystemEventType.WRITE, "old/a")][-1]
    assert (written.entry.path, written.entry.type) == ("/home/user/w/old/a", FileType.FILE)
    assert watch.get_new_events() == []
    watch.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()


def test_only_directories_that_exist_can_be_watched(box):
    with pytest.raises(FileNotFoundException):
        box.files.watch_dir("none")
    box.files.write("file", "x")
    with pytest.raises(InvalidArgumentException):
        box.files.watch_dir("file")


def test_a_signed_link_downloads_and_uploads(box):
    box.files.write("hello é.txt", "hello")
    for options in ({}, {"use_signature_expiration": 60}, {"user": "user"}):
        reply = httpx.get(box.download_url("hello é.txt", **options))
        assert (reply.status_code, reply.text) == (200, "hello")
    reply = httpx.post(box.upload_url("up.txt", user="root"), files={"file": b"uploaded"})
    assert reply.status_code == 200
    assert reply.json() == [{"name": "up.txt", "path": "/root/up.txt", "type": "file"}]
    assert box.files.read("/root/up.txt") == "uploaded"


def test_a_link_that_is_expired_or_changed_opens_nothing(box):
    box.files.write("hello", "hello")
    reply = httpx.get(box.download_url("hello", use_signature_expiration=-10))
    assert (reply.status_code, reply.json()) == (401, {"code": 401, "message": "signature is already expired"})
    assert httpx.get(box.download_url("hello").replace("hello", "other")).status_code == 401
    assert httpx.post(box.download_url("hello"), files={"file": b"x"}).status_code == 401


def test_servers_inside_are_reached_from_outside(box):
    box.files.write("site/page", "served from inside")
    box.commands.run("python3 -m http.server 8123 -d site", background=True)
    reply = until(lambda: (r := inside(box, 8123, "/page")).status_code == 200 and r, 20)
    assert reply and reply.text == "served from inside"
    reply = inside(box, 8124)
    assert reply.status_code == 502
    assert reply.json()["message"] == "The sandbox is running but port is not open"
