# SPDX-License-Identifier: Apache-2.0
"""What the suites tell of a container alone, by tier (COVE_TEST_TIER), each with the reason: docs/COMPATIBILITY.md shows the figures. A test that is named here is skipped there."""

import os
import re

GVISOR = {
    "gVisor's own kernel answers: with another errno, or it does so inside itself, where nothing of the host is reached":
        r"attack/kernel_test.*::test_(refused\[(K07-unshare-(cgroup|user|all|time|hidden)|K07-clone-(mount|cgroup|user)|K08|K-fsconfig|K10-perf|K11|K12-(quotactl-fd|syslog)|K14|"
        r"K15-(packet|pair-netlink|family|mptcp|bridge|make-bridge|vlan)|K18-personality|K20|N22|N24-netlink-uevent|R09|R06-(nice|fifo|round|deadline)|K27|F11-(map-files|stack)|F13|"
        r"R-raise)|K06|K22|K25|core_dumps|out_of_memory_score|unknown_system)"
        r"|attack/files_test.*::test_(F07|F14|F16|F18|F20_hostile_types|F22|F23|F24|immutable|chroot)|attack/(sharing|resources)_test.*::test_(R09_aio|uid_ranges|times_and_numbers)"
        r"|attack/resources_test.*::test_R02_connections_and_locks"
        r"|attack/positive_test.*(posix-queues-and-semaphores|personality-no-randomisation)",
    "root may end the first process, and with it the sandbox": r"attack/kernel_test.*::test_(K02|agent_is_not_to_be_confused)",
    "the sentry has its processes: from outside it alone is seen, and it starts the agent by its path":
        r"attack/kernel_test.*::test_(K29|seen_from_the_host|agents_have_nothing|K24_double|first_process|a_process_that_starts)"
        r"|attack/own_limits_test.*::test_(limits_in_force|R06_processor)|system/native_test.*::test_ps_inside_shows",
    "over its memory the whole sandbox ends; so it does when its host threads are used up, and its own threads need none":
        r"attack/(resources|own_limits)_test.*::test_(R01|R02_(memory\[(anonymous|memfd|shm|sysv|sockets|udp|tcp)|many_small|out_of_memory|answers|groups))|system/limits_test",
    "the sentry has its files to itself: it need not see what is changed from outside": r"system/pause_test.*::test_a_resume_waits_until",
    "a template's start is stored with memory, and what begins behind it has no connection that was open": r"network/reach_test.*::test_what_a_spares_start",
    "nothing can be mounted into a running sentry": r"network/(?:agents|aider)_test|system/volume_test",
}
DIFFERENCES = {"gvisor": GVISOR}
LATE = "out of time (COVE_TEST_UNTIL)"


def skipped(tier, nodeid):
    """Why it is, or None."""
    return next((why for why, pattern in DIFFERENCES.get(tier, {}).items() if re.search(pattern, nodeid)), None)


def reason(nodeid):
    return skipped(os.environ.get("COVE_TEST_TIER"), nodeid)
