# SPDX-License-Identifier: Apache-2.0
"""What `cove diff` says of large files that are clones, on a file system where clones share their bytes: the same as if it read them."""

import pytest
from snapshot_test import diff_lookups, sh
from storage_test import prepared

MIB = 64
BLOCKS = MIB << 20 >> 16 # each a look-up, when they are read
FEW = 200 # names and layers


@pytest.fixture(scope="module")
def service():
    with prepared(COVE_POOL="btrfs", COVE_LOG="debug") as service:
        service.start()
        yield service
        service.remove_all()
        assert service.stop() == 0, service.tail()


def change(service, box, at):
    """One byte is another, which nobody has written out yet."""
    sh(service, box, f"python3 -c 'f = open(\"big\", \"r+b\"); f.seek({at}); b = f.read(1)[0]; f.seek({at}); f.write(bytes([b ^ 1]))'")


def test_a_large_file_of_two_forks(service):
    first = service.create()
    sh(service, first, f"head -c {MIB}M /dev/urandom > big")
    second, third = service.cove("fork", "-n", "2", "--timeout", "5m", first).stdout.split()

    def expect(told, *sides):
        said, used = diff_lookups(service, *sides)
        assert said == told
        assert used < FEW < BLOCKS

    expect("", first, second)
    expect("", second, third)
    for box, at in ((second, (MIB << 20) - 1), (third, MIB << 19)):
        change(service, box, at)
        expect("M /home/user/big\n", first, box) # overlayfs has copied it: another clone
        change(service, box, at)
        expect("", first, box)
    expect("", second, third) # each a copy of its own
    change(service, third, 5 << 20)
    expect("M /home/user/big\n", second, third)
    expect("M /home/user/big\n", third)


def test_a_large_file_that_is_the_same_without_being_a_clone(service):
    first = service.create()
    sh(service, first, f"head -c {MIB}M /dev/urandom > big")
    second = service.cove("fork", "--timeout", "5m", first).stdout.strip()
    sh(service, second, "python3 -c 'import os; open(\"copy\", \"wb\").write(open(\"big\", \"rb\").read()); os.rename(\"copy\", \"big\")'; sync")
    told, used = diff_lookups(service, first, second)
    assert told == "" and used >= BLOCKS
    change(service, second, MIB << 19)
    told, used = diff_lookups(service, first, second)
    assert told == "M /home/user/big\n" and used >= BLOCKS / 2
