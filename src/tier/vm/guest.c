/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/guest.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sha1.h"
#include "kernel/mount.h"
#include "kernel/netns.h"
#include "tier/root.h"
#include "tier/vm/body.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SPEAKS_WITHIN_MS = 5000, /* KVM; ten times that when emulated */
    TSC_USEC = 20000,
    INITRAMFS_MAX = 32 << 20,
    NOBODY = 65534,
    GUEST_LINK = 2, /* the first interface behind lo */
};

/* ---- an initramfs: the "newc" format of cpio, of which the kernel unpacks one ---- */

static void guest_cpio(struct buf *b, const char *name, uint32_t mode, struct str data)
{
    static uint32_t inode;
    (void)buf_printf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", ++inode, mode, 0, 0, 1, 0,
                     (unsigned)data.n, 0, 0, 0, 0, (unsigned)strlen(name) + 1, 0);
    (void)buf_append(b, name, strlen(name) + 1);
    while (buf_len(b) % 4)
        (void)buf_append_char(b, 0);
    (void)buf_append_str(b, data);
    while (buf_len(b) % 4)
        (void)buf_append_char(b, 0);
}

static int guest_is_module(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int guest_add_modules(struct buf *b, const char *dir)
{
    char path[512], name[300];
    struct dirent **names = NULL;
    (void)snprintf(path, sizeof(path), "%s/modules", dir);
    int n = scandir(path, &names, guest_is_module, alphasort), r = n < 0 ? -errno : 0;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < n; i++) {
        AUTO_BUF struct buf module = BUF_INIT(INITRAMFS_MAX);
        r = r ? r : fd_read_file(fd, names[i]->d_name, &module);
        (void)snprintf(name, sizeof(name), "m/%s", names[i]->d_name);
        guest_cpio(b, name, S_IFREG | 0644, buf_str(&module));
        mem_free(names[i]);
    }
    mem_free(names);
    return r;
}

static int guest_make_initramfs(const char *dir, int agent_fd, int *ret_fd)
{
    static const char *const directories[] = {"m", "dev", "root"};
    AUTO_BUF struct buf b = BUF_INIT(INITRAMFS_MAX), agent = BUF_INIT(INITRAMFS_MAX);
    char path[32], network[4096];
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        guest_cpio(&b, directories[i], S_IFDIR | 0755, STR(""));
    guest_cpio(&b, "network", S_IFREG | 0600,
               str_n(network, netns_gate_describe(GUEST_LINK, network, sizeof(network))));
    guest_cpio(&b, "resolv.conf", S_IFREG | 0600, str_of(root_resolver));
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", agent_fd);
    int r = fd_read_file(AT_FDCWD, path, &agent);
    guest_cpio(&b, "init", S_IFREG | 0755, buf_str(&agent));
    r = r ? r : guest_add_modules(&b, dir);
    guest_cpio(&b, "TRAILER!!!", 0, STR(""));
    r = r ? r : buf_error(&b);
    r = r ? r : child_input(buf_str(&b));
    if (r < 0)
        return r;
    *ret_fd = r;
    return 0;
}

/* The files that are too large for a sum count by how they look. */
static int guest_identify(const char *dir, int initramfs, uint64_t *ret_id)
{
    char kernel[512], path[32];
    uint8_t digest[SHA1_BYTES];
    AUTO_BUF struct buf b = BUF_INIT(INITRAMFS_MAX);
    struct sha1 s;
    sha1_init(&s);
    (void)snprintf(kernel, sizeof(kernel), "%s/vmlinux", dir);
    const char *const looked_at[] = {kernel, vmm_qemu.program};
    for (size_t i = 0; i < ARRAY_SIZE(looked_at); i++) {
        struct stat st;
        if (stat(looked_at[i], &st) < 0)
            return -errno;
        const int64_t look[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        sha1_add(&s, str_n(look, sizeof(look)));
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", initramfs);
    int r = fd_read_file(AT_FDCWD, path, &b);
    sha1_add(&s, buf_str(&b));
    sha1_end(&s, digest);
    memcpy(ret_id, digest, sizeof(*ret_id));
    return r;
}

/* ---- does it work ---- */

NORETURN static void guest_try_run(const char *kernel, bool kvm, int console)
{
    static struct vmm_command c;
    static char words[] = "console=ttyS0 earlyprintk=ttyS0 panic=-1 reboot=t";
    char *const environment[] = {NULL};
    const struct vmm_spec spec = {.memory_bytes = 128 << 20,
                                  .cpus = 1,
                                  .emulated = !kvm,
                                  .tsc_khz = 1000000,
                                  .wire_fd = -1,
                                  .console_fd = console,
                                  .incoming_fd = -1,
                                  .net_fd = -1};
    vmm_qemu.command(&spec, &c);
    for (size_t i = 0; i < c.n; i++) {
        if (strcmp(c.argv[i], VMM_KERNEL) == 0)
            c.argv[i] = (char *)(uintptr_t)kernel;
        if (strncmp(c.argv[i], "console=", 8) == 0)
            c.argv[i] = words;
    }
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; fd++)
        (void)dup2(null, fd);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || fd_cloexec(console, false) < 0 ||
        (!kvm && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)))
        _exit(126);
    (void)execve(vmm_qemu.program, c.argv, environment);
    _exit(127);
}

static bool guest_speaks(int console, usec_t until)
{
    AUTO_BUF struct buf said = BUF_INIT(64 * 1024);
    char block[4096];
    for (usec_t now; (now = clock_mono()) < until;) {
        struct pollfd p = {.fd = console, .events = POLLIN};
        if (poll(&p, 1, (int)((until - now) / USEC_PER_MS) + 1) <= 0)
            continue;
        ssize_t n = read(console, block, sizeof(block));
        if (n <= 0 || buf_append(&said, block, (size_t)n) < 0)
            return false;
        if (memmem(buf_data(&said), buf_len(&said), "Linux version", 13))
            return true;
    }
    return false;
}

int guest_host_try(const char *dir, bool kvm, usec_t *ret_took, struct err *err)
{
    char kernel[512];
    int console[2];
    (void)snprintf(kernel, sizeof(kernel), "%s/vmlinux", dir);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, console) < 0)
        return err_errno(err, errno, "make a socket pair");
    usec_t begun = clock_mono();
    pid_t pid = fork();
    if (pid == 0)
        guest_try_run(kernel, kvm, console[1]);
    (void)fd_close(console[1]);
    bool speaks = pid > 0 && guest_speaks(console[0], begun + SPEAKS_WITHIN_MS * USEC_PER_MS * (kvm ? 1 : 10));
    *ret_took = clock_mono() - begun;
    (void)fd_close(console[0]);
    child_kill(pid);
    return speaks ? 0
                  : err_set(err, ERR_FAILED_PRECONDITION, "a kernel that %s started with %s said nothing",
                            vmm_qemu.name, kvm ? "KVM" : "emulation");
}

/* ---- what there is ---- */

/* Of the host's time stamps, which emulation hands through. */
static uint32_t guest_tsc_khz(void)
{
#ifdef __x86_64__
    struct timespec a, b;
    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &a);
    const uint64_t from = __builtin_ia32_rdtsc();
    (void)usleep(TSC_USEC);
    (void)clock_gettime(CLOCK_MONOTONIC_RAW, &b);
    const uint64_t ticks = __builtin_ia32_rdtsc() - from;
    const uint64_t ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
    return (uint32_t)(ticks * 1000000 / ns);
#else
    return 0;
#endif
}

static int guest_look(const char *dir, struct err *err)
{
    const char *const wanted[][2] = {{vmm_qemu.program, vmm_qemu.package},
                                     {"/usr/bin/mkfs.erofs", "erofs-utils"},
                                     {"/usr/sbin/mke2fs", "e2fsprogs"}};
    char path[512];
#ifndef __x86_64__
    return err_set(err, ERR_FAILED_PRECONDITION, "it is there for x86-64 only");
#endif
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (access(wanted[i][0], X_OK) < 0)
            return err_set(err, ERR_FAILED_PRECONDITION, "%s is not installed: apt-get install %s", wanted[i][0],
                           wanted[i][1]);
    if (access("/dev/net/tun", R_OK | W_OK) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "there is no /dev/net/tun: modprobe tun");
    (void)snprintf(path, sizeof(path), "%s/vmlinux", dir);
    if (access(path, R_OK) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "there is no kernel for it in %s: cove-guest makes one", dir);
    return 0;
}

static int guest_choose(const char *dir, bool may_emulate, struct guest_host *h, struct err *err)
{
    usec_t took;
    if (access("/dev/kvm", R_OK | W_OK) == 0 && guest_host_try(dir, true, &took, err) == 0)
        return 0;
    h->emulated = true;
    if (may_emulate)
        return 0;
    const char *why = access("/dev/kvm", F_OK) < 0 ? "this machine has no KVM" : "KVM doesn't work on this machine";
    return err_set(err, ERR_FAILED_PRECONDITION, "%s; microvm.emulate would do without, slowly", why);
}

int guest_host_open(const char *dir, bool may_emulate, int agent_fd, struct guest_host *ret_host, struct err *err)
{
    char path[512];
    struct guest_host h = {.usr = -1, .kernel = -1, .kvm = -1, .initramfs = -1, .tun = -1};
    if (guest_look(dir, err) < 0 || guest_choose(dir, may_emulate, &h, err) < 0)
        return -1;
    h.tsc_khz = guest_tsc_khz();
    if (agent_fd >= 0) {
        (void)snprintf(path, sizeof(path), "%s/vmlinux", dir);
        int r = mount_clone(AT_FDCWD, "/usr", &h.usr);
        r = r ? r : mount_clone(AT_FDCWD, path, &h.kernel);
        r = r || h.emulated ? r : mount_clone(AT_FDCWD, "/dev/kvm", &h.kvm);
        r = r ? r : guest_make_initramfs(dir, agent_fd, &h.initramfs);
        r = r ? r : guest_identify(dir, h.initramfs, &h.id);
        AUTO_CLOSE int tun = open("/dev/net/tun", O_PATH | O_CLOEXEC);
        r = r || tun >= 0 ? r : -errno;
        if (r < 0)
            return err_errno(err, r, "read what machines are made with");
        h.tun = TAKE_FD(tun);
    }
    *ret_host = h;
    return 0;
}

static int guest_attach(int *fd, const char *to, bool is_dir)
{
    if (*fd < 0)
        return 0;
    if (is_dir ? mkdir(to, 0755) < 0 : fd_write_file(AT_FDCWD, to, STR(""), 0444) < 0)
        return -errno;
    int r = mount_attach(*fd, AT_FDCWD, to);
    *fd = fd_close(*fd);
    return r;
}

int guest_host_stage(struct guest_host *h)
{
    AUTO_BUF struct buf b = BUF_INIT(INITRAMFS_MAX);
    char path[32];
    if (mkdir(VM_STAGE, 0755) < 0)
        return -errno;
    int r = guest_attach(&h->usr, VM_STAGE_USR, true);
    r = r ? r : guest_attach(&h->kernel, VM_STAGE_KERNEL, false);
    r = r ? r : guest_attach(&h->kvm, VM_STAGE_KVM, false);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", h->initramfs);
    r = r ? r : fd_read_file(AT_FDCWD, path, &b);
    r = r ? r : fd_write_file(AT_FDCWD, VM_STAGE_INITRAMFS, buf_str(&b), 0444);
    h->initramfs = fd_close(h->initramfs);
    return r;
}
