/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/rootfs.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernel/probe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int choose(const struct probe_env *env, enum overlay_mode *ret_mode, struct err *err)
{
    const char *forced = getenv("COVE_OVERLAY");
    if (!forced || !*forced) {
        int r = probe_overlay_mode(env, ret_mode);
        return r < 0 ? err_errno(err, r, "overlay of idmapped layers") : 0;
    }
    const bool is_attached = strcmp(forced, "attached") == 0;
    if (!is_attached && strcmp(forced, "detached") != 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "COVE_OVERLAY must be detached or attached");
    *ret_mode = is_attached ? OVERLAY_ATTACHED : OVERLAY_DETACHED;
    int r = probe_overlay(env, *ret_mode);
    return r < 0 ? err_errno(err, r, "overlay of idmapped layers, %s as COVE_OVERLAY says", forced) : 0;
}

int rootfs_choose(const char *pool_dir, const char *state_dir, enum overlay_mode *ret_mode, struct err *err)
{
    AUTO_FREE char *dir = mem_printf("%s/new", pool_dir);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make %s", dir);
    const struct probe_env env = {dir};
    enum overlay_mode mode = OVERLAY_DETACHED;
    if (choose(&env, &mode, err) < 0) {
        log_error(
            "sandboxes can't have root file systems in %s: Linux 5.19 and a file system with idmapped mounts (ext4,"
            " xfs, btrfs) are needed; set state_dir or COVE_STATE to a place on one ('coved doctor' says more)",
            state_dir);
        return -1;
    }
    if (mode == OVERLAY_ATTACHED)
        log_info("root file systems are mounted from attached layers (not needed from Linux 6.15 on): creating a "
                 "sandbox takes longer");
    *ret_mode = mode;
    return 0;
}
