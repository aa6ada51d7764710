/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/caps.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int get(struct __user_cap_data_struct data[2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    return syscall(SYS_capget, &header, data) < 0 ? -errno : 0;
}

static int caps_put(const struct __user_cap_data_struct data[2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

int caps_raise_effective(void)
{
    struct __user_cap_data_struct data[2];
    int r = get(data);
    if (r < 0)
        return r;
    for (int i = 0; i < 2; i++)
        data[i].effective = data[i].permitted;
    return caps_put(data);
}

static int bound(uint64_t keep)
{
    for (int cap = 0; cap < 64; cap++) {
        if (keep & 1ULL << cap || prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
            continue;
        int error = errno, has = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
        if (has < 0) /* beyond this kernel's last capability */
            break;
        if (has > 0) /* who may drop none may have none */
            return -error;
    }
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL ? -errno : 0;
}

int caps_bound_sandbox(void)
{
    static const int kept[] = {
        CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_KILL,        CAP_SETGID,
        CAP_SETUID, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_AUDIT_WRITE, CAP_SETFCAP,
    };
    uint64_t keep = 0;
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        keep |= 1ULL << kept[i];
    int r = bound(keep);
    if (r < 0)
        return r;
    struct __user_cap_data_struct data[2];
    r = get(data);
    if (r < 0)
        return r;
    data[0].inheritable = data[1].inheritable = 0;
    return caps_put(data);
}

int caps_bound_readers(void)
{
    const uint64_t keep = 1ULL << CAP_DAC_READ_SEARCH;
    int r = bound(keep);
    struct __user_cap_data_struct data[2] = {{.effective = (uint32_t)keep, .permitted = (uint32_t)keep}};
    return r ? r : caps_put(data);
}

int caps_drop_all(void)
{
    int r = bound(0);
    if (r < 0)
        return r;
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof(none));
    return caps_put(none);
}

int caps_keep_only(uint64_t keep, uid_t uid)
{
    int r = bound(0);
    if (r < 0)
        return r;
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    struct __user_cap_data_struct data[2];
    for (size_t i = 0; i < ARRAY_SIZE(data); i++) {
        uint32_t half = (uint32_t)(keep >> 32 * i);
        data[i] = (struct __user_cap_data_struct){.effective = half, .permitted = half};
    }
    return caps_put(data);
}
