/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/netns.h"
#include "kernel/probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { ARRIVE_MS = 1000, PROBE_PORT = 443 };

/* A connection to an address of nobody's must end up in our hands, and say where it wanted to go. */
static int tcp_arrives(const struct netns *net)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PROBE_PORT)}, original;
    struct sockaddr_storage found;
    socklen_t n = sizeof(found);
    struct pollfd p = {.fd = net->tcp, .events = POLLIN};
    AUTO_CLOSE int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)inet_pton(AF_INET, "198.51.100.66", &to.sin_addr);
    if (client < 0 || (connect(client, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS))
        return -errno;
    if (poll(&p, 1, ARRIVE_MS) != 1)
        return -ETIMEDOUT;
    AUTO_CLOSE int server = accept4(net->tcp, (struct sockaddr *)&found, &n, SOCK_CLOEXEC);
    int r = server < 0 ? -errno : netns_original(server, &found);
    if (r < 0)
        return r;
    memcpy(&original, &found, sizeof(original));
    return original.sin_addr.s_addr == to.sin_addr.s_addr && original.sin_port == to.sin_port ? 0 : -EADDRNOTAVAIL;
}

static int other_udp_is_refused(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PROBE_PORT)};
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET, "198.51.100.66", &to.sin_addr);
    return fd >= 0 && sendto(fd, "", 1, 0, (const struct sockaddr *)&to, sizeof(to)) < 0 ? 0 : -EISCONN;
}

/* Returns an errno. */
static int capture_child(const void *arg UNUSED)
{
    struct netns net = NETNS_NONE;
    int r = netns_make(&net);
    r = r ? r : tcp_arrives(&net);
    r = r ? r : other_udp_is_refused();
    netns_close(&net);
    return -r;
}

void probe_network(const struct probe_env *env UNUSED, struct probe_result *r)
{
    usec_t from = clock_mono();
    int e = probe_in_child(capture_child, NULL);
    if (e == -ETIMEDOUT)
        e = probe_in_child(capture_child, NULL); /* the first one had the kernel load its modules */
    usec_t took = clock_mono() - from;
    if (e == 0)
        probe_say(r, PROBE_OK, "TCP and DNS of a sandbox are captured, all else is refused; made and tried in %llu us",
                  (unsigned long long)took);
    else if (e == EOPNOTSUPP || e == EAFNOSUPPORT)
        probe_say(r, PROBE_DEGRADED,
                  "%s: sandboxes have no network except their own loopback. The kernel needs nf_tables (inet, nat, ct, "
                  "reject, limit) and IPv6; where it can't load them by itself: modprobe -a nf_tables nft_ct nft_nat "
                  "nft_chain_nat nft_reject_inet nft_limit",
                  strerror(e));
    else
        probe_say(r, PROBE_DEGRADED, "%s: sandboxes have no network except their own loopback",
                  e < 256 ? strerror(abs(e)) : "the attempt was killed");
}
