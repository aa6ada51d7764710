/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/root.h"
#include "base/fault.h"
#include "base/fd.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"
#include "tier/files.h"

#include <fcntl.h>
#include <unistd.h>

uid_t root_base(const struct tier_host *host, const struct box *box)
{
    return host->first_uid + box->slot * (uid_t)NAMESPACE_IDS;
}

void root_name(struct box *box)
{
    static uint32_t serial; /* a slot is used again, a name is not */
    char random[7];
    id_token(random, sizeof(random) - 1);
    (void)snprintf(box->name, sizeof(box->name), "cove-%s%x", random, serial++);
}

/* Answers come from this machine: who waits longer than that for one waits in vain. */
const char root_resolver[] = "nameserver " NETNS_DNS_ADDRESS "\noptions timeout:3 attempts:2\n";

int root_mount(const struct tier_host *host, struct box *box, const struct tier_dress *how, int *ret_fd,
               struct overlay_parts *ret_parts, struct err *err)
{
    char hostname[TIER_NAME_MAX + 1], hosts[256];
    (void)snprintf(hostname, sizeof(hostname), "%s\n", box->name);
    (void)snprintf(hosts, sizeof(hosts),
                   "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n", box->name);
    const struct pool_file files[] = {
        {"etc/hostname", hostname}, {"etc/hosts", hosts}, {"etc/resolv.conf", root_resolver}};
    bool captured = box->net.tcp >= 0;
    const struct pool_box spec = {.name = box->name,
                                  .from_layer = how->files->from_layer,
                                  .from_kept = how->files->from_kept,
                                  .chain = how->files->chain,
                                  .files = files,
                                  .n_files = ARRAY_SIZE(files) - !captured,
                                  .limit_bytes = 0};
    int layer_fds[POOL_CHAIN_MAX];
    const struct pool_chain *chain = how->files->chain;
    const size_t own = how->files->from_layer; /* layers of which it has a copy */
    AUTO_CLOSE int box_fd = -1;
    int r = pool_box_make(host->pool, &spec, &box_fd);
    if (r < 0)
        return err_errno(err, r, "make the private directory in the storage pool");
    box->has_files = true;
    box->disk_bytes = 0;
    r = pool_chain_open(host->pool, chain, layer_fds);
    if (r < 0)
        return err_errno(err, r, "open the template's layers");
    const struct overlay overlay = {
        .mode = (enum overlay_mode)host->overlay_mode,
        .lower_fds = layer_fds + own,
        .n_lower = chain->n - own,
        .box_fd = box_fd,
        .userns_fd = box->userns_fd,
        .base = root_base(host, box),
        .scratch = "/scratch",
    };
    const bool is_disk = (chain->n && faccessat(layer_fds[0], FILES_DISK, F_OK, AT_SYMLINK_NOFOLLOW) == 0) ||
                         faccessat(box_fd, "u/" FILES_DISK, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    const char *step = "begin";
    r = is_disk ? -EMEDIUMTYPE : fault_error("tier.root.mount");
    r = r ? r : overlay_mount(&overlay, ret_fd, ret_parts, &step);
    for (size_t i = 0; i < chain->n; i++)
        (void)fd_close(layer_fds[i]);
    if (is_disk)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "its files are the disk of a virtual machine, which only tier microvm can use");
    return r < 0 ? err_errno(err, r, "mount the root file system: %s", step) : 0;
}
