/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/netlink.h"
#include "base/fd.h"

#include <libmnl/libmnl.h>
#include <sys/socket.h>

/* Attributes are added after the header of the last message is made, so its length is known when the next one
 * begins. */
void netlink_settle(struct netlink *nl)
{
    if (nl->n) {
        struct nlmsghdr *last = (struct nlmsghdr *)(void *)(nl->bytes + nl->used);
        nl->used += MNL_ALIGN(last->nlmsg_len);
    }
    assert(nl->used + 1024 < sizeof(nl->bytes)); /* no message of ours is longer */
}

struct nlmsghdr *netlink_add(struct netlink *nl, uint16_t type, uint16_t flags, const void *header, size_t header_size)
{
    netlink_settle(nl);
    struct nlmsghdr *h = mnl_nlmsg_put_header(nl->bytes + nl->used);
    h->nlmsg_type = type;
    h->nlmsg_flags = NLM_F_REQUEST | flags;
    h->nlmsg_seq = nl->n++;
    memcpy(mnl_nlmsg_put_extra_header(h, header_size), header, header_size);
    return h;
}

/* The kernel has done all and queued its answers by the time that the send returns. */
static int read_answers(int fd)
{
    _Alignas(8) char bytes[NETLINK_BYTES];
    bool acknowledged = false;
    for (;;) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return acknowledged ? 0 : -EPROTO;
        if (n < 0)
            return -errno;
        int left = (int)n;
        for (const struct nlmsghdr *h = (const void *)bytes; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left)) {
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < mnl_nlmsg_size(sizeof(struct nlmsgerr)))
                continue;
            const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);
            if (e->error)
                return e->error;
            acknowledged = true;
        }
    }
}

int netlink_talk(struct netlink *nl, int bus)
{
    netlink_settle(nl);
    AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, bus);
    if (fd < 0)
        return -errno;
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t n = sendto(fd, nl->bytes, nl->used, 0, (const struct sockaddr *)&kernel, sizeof(kernel));
    return n < 0 ? -errno : read_answers(fd);
}
